// Kernels of a program: one as usual, and one of a handler that runs when the main thread's own variables are gone.
#include <hip/hip_runtime_api.h>

#include <cstdlib>

#include <unistd.h>

static void* area;

static void fill() {
  if (hipMemset(area, 1, 4096) != hipSuccess || hipDeviceSynchronize() != hipSuccess) _exit(3);
}

int main() {
  if (hipMalloc(&area, 4096) != hipSuccess) return 1;
  fill();
  return atexit(fill);
}
