// Linked with HIP, but never touches a GPU.
#include "common.h"

int main() {
  COUNT("count hipGetErrorString");
  const char* text = hipGetErrorString(hipErrorInvalidValue);
  COUNT("count hipGetErrorName");
  const char* name = hipGetErrorName(hipErrorInvalidValue);
  EXPECT(text && *text && name && strcmp(name, "hipErrorInvalidValue") == 0, "errors have no names");
  return common::report();
}
