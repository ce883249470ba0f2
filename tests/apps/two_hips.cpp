// two_hips LIBRARY CALLS first|second: loads another HIP library, before or after the program's own has begun to use the
// GPU, and calls hipGetErrorName of each in turn: of its own with 0, 1, 2, …, of the other with 100000, 100001, ….
#include "common.h"

#include <dlfcn.h>
#include <unistd.h>

using Name = const char* (*)(hipError_t);

static Name load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) common::fail("%s", dlerror());
  return library ? reinterpret_cast<Name>(dlsym(library, "hipGetErrorName")) : nullptr;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const bool first = !strcmp(argv[3], "first");
  Name other = first ? load(argv[1]) : nullptr;
  void* memory = nullptr;
  if (hipMalloc(&memory, 64) != hipSuccess) return 3;
  if (!first) other = load(argv[1]);
  if (!other) return 4;
  for (int i = 0; i < atoi(argv[2]); i++) {
    (void)hipGetErrorName(static_cast<hipError_t>(i));
    (void)other(static_cast<hipError_t>(100000 + i));
  }
  printf("result ok\n");
  fflush(stdout);
  // The destructors of two runtimes are not the subject.
  _exit(hipFree(memory) != hipSuccess);
}
