// One of each: allocation, copies, a kernel, fills, events, synchronisation.
#include "common.h"

extern "C" __global__ void add_one(unsigned* data, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += 1;
}

HOST_KERNEL(add_one) {
  auto data = argument<unsigned*>(args, 0);
  for (unsigned i = 0, n = argument<unsigned>(args, 8); i < n; i++) data[i] += 1;
}

int main() {
  const unsigned n = 100000;
  const size_t bytes = n * sizeof(unsigned);
  std::vector<unsigned> in(n), out(n);
  for (unsigned i = 0; i < n; i++) in[i] = i * 3;
  unsigned *a, *b;
  HIP(hipSetDevice, 0);
  if (HIP(hipMalloc, (void**)&a, bytes) || HIP(hipMalloc, (void**)&b, bytes)) return common::report();
  hipEvent_t start, stop;
  HIP(hipEventCreate, &start);
  HIP(hipEventCreate, &stop);

  HIP(hipMemcpy, a, in.data(), bytes, hipMemcpyHostToDevice);
  COPIED("H2D", bytes);
  HIP(hipEventRecord, start, nullptr);
  for (int i = 0; i < 3; i++) {
    LAUNCH(add_one, (n + 255) / 256, 256, nullptr, a, n);
    HIP(hipGetLastError);
  }
  HIP(hipEventRecord, stop, nullptr);
  HIP(hipEventSynchronize, stop);
  float ms = -1;
  HIP(hipEventElapsedTime, &ms, start, stop);
  EXPECT(ms >= 0 && ms < 10000, "elapsed time of %f ms", ms);

  HIP(hipMemcpy, b, a, bytes, hipMemcpyDeviceToDevice);
  COPIED("D2D", bytes);
  HIP(hipMemcpy, out.data(), b, bytes, hipMemcpyDeviceToHost);
  COPIED("D2H", bytes);
  for (unsigned i = 0; i < n; i++) EXPECT(out[i] == in[i] + 3, "element %u is %u", i, out[i]);

  HIP(hipMemset, b, 0x5a, bytes);
  COPIED("fill", bytes);
  HIP(hipDeviceSynchronize);
  HIP(hipMemcpy, out.data(), b, bytes, hipMemcpyDeviceToHost);
  COPIED("D2H", bytes);
  for (unsigned i = 0; i < n; i++) EXPECT(out[i] == 0x5a5a5a5a, "filled element %u is %x", i, out[i]);

  HIP(hipEventDestroy, start);
  HIP(hipEventDestroy, stop);
  HIP(hipFree, a);
  HIP(hipFree, b);
  return common::report();
}
