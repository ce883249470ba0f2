// Threads at once, all of which launch before the first of them ends; and that again and again.
//   crowd [threads 300] [rounds 1]
#include "common.h"

#include <pthread.h>

#include <thread>

extern "C" __global__ void crowd_kernel(unsigned* x) {
  if (threadIdx.x == 0) atomicAdd(x, 1);
}
HOST_KERNEL(crowd_kernel) { __atomic_add_fetch(argument<unsigned*>(args, 0), 1, __ATOMIC_RELAXED); }

int main(int argc, char** argv) {
  const unsigned threads = (unsigned)number(argc, argv, 1, 300), rounds = (unsigned)number(argc, argv, 2, 1);
  unsigned *x = nullptr, result = 0;
  if (HIP(hipMalloc, (void**)&x, sizeof *x)) return common::report();
  HIP(hipMemset, x, 0, sizeof *x);
  COPIED("fill", sizeof *x);
  pthread_barrier_t all;
  pthread_barrier_init(&all, nullptr, threads);
  for (unsigned r = 0; r < rounds; r++) {
    std::vector<std::thread> crowd;
    for (unsigned t = 0; t < threads; t++)
      crowd.emplace_back([&] {
        LAUNCH(crowd_kernel, 1, 64, nullptr, x);
        pthread_barrier_wait(&all);
      });
    for (auto& thread : crowd) thread.join();
  }
  HIP(hipDeviceSynchronize);
  HIP(hipMemcpy, &result, x, sizeof *x, hipMemcpyDeviceToHost);
  COPIED("D2H", sizeof *x);
  EXPECT(result == threads * rounds, "ran %u of %u", result, threads * rounds);
  HIP(hipFree, x);
  return common::report();
}
