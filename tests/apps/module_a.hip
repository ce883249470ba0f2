// Code object of `module`, first of two.
#include <hip/hip_runtime.h>

extern "C" __global__ void module_scale(unsigned* data, unsigned n, unsigned factor) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] *= factor;
}
