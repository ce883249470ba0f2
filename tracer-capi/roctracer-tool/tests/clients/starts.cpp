// What a program traces of itself: nothing before it asks for that, and nothing after.
#include <hip/hip_runtime_api.h>
#include <roctracer/roctracer_ext.h>

int main() {
  void *memory = nullptr, *traced = nullptr;
  if (hipMalloc(&memory, 64) != hipSuccess) return 1;
  roctracer_start();
  if (hipMalloc(&traced, 64) != hipSuccess || hipMemset(memory, 0, 64) != hipSuccess) return 1;
  roctracer_stop();
  return hipFree(traced) != hipSuccess || hipFree(memory) != hipSuccess;
}
