// Code object of `module`, second of two: likely to be loaded where the first was.
#include <hip/hip_runtime.h>

extern "C" __global__ void module_shift(unsigned* data, unsigned n, unsigned by) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += by;
}
