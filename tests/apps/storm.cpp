// Many threads with many streams launch as fast as they can, and begin together.
//   storm [threads ≤ 16] [streams per thread] [launches per stream] [synchronise every n launches] [devices]
// Each thread has a kernel of its own name. With KEEP_STREAMS set no stream is destroyed.
#include "common.h"

#include <pthread.h>
#include <time.h>

#include <thread>

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)

#define KERNEL(T)                                                  \
  extern "C" __global__ void storm_t##T(unsigned* launched) {      \
    if (blockIdx.x == 0 && threadIdx.x == 0) *launched += 1;       \
  }                                                                \
  HOST_KERNEL(storm_t##T) { *argument<unsigned*>(args, 0) += 1; }
EACH(KERNEL)

static void launch(int thread, hipStream_t stream, unsigned* launched) {
  switch (thread) {
#define CASE(T) case T: LAUNCH(storm_t##T, 1, 64, stream, launched); break;
    EACH(CASE)
  }
}

static pthread_barrier_t ready;  // No thread has ended before all have used the GPU.

static void run(int thread, int streams, long launches, long every, int devices) {
  const size_t bytes = streams * sizeof(unsigned);
  unsigned* launched = nullptr;
  std::vector<unsigned> result(streams);
  std::vector<hipStream_t> list(streams);
  const bool usable = !(devices > 1 && HIP(hipSetDevice, thread % devices)) && !HIP(hipMalloc, (void**)&launched, bytes);
  if (usable) {
    HIP(hipMemset, launched, 0, bytes);
    COPIED("fill", bytes);
    HIP(hipDeviceSynchronize);
    for (auto& s : list) HIP(hipStreamCreate, &s);
  }
  pthread_barrier_wait(&ready);
  if (!usable) return;
  for (long i = 1; i <= launches; i++) {
    for (int s = 0; s < streams; s++) {
      launch(thread, list[s], launched + s);
      if (every && i % every == 0) HIP(hipStreamSynchronize, list[s]);
    }
  }
  for (auto& s : list) HIP(hipStreamSynchronize, s);
  HIP(hipMemcpy, result.data(), launched, bytes, hipMemcpyDeviceToHost);
  COPIED("D2H", bytes);
  for (int s = 0; s < streams; s++)
    EXPECT(result[s] == launches, "thread %d stream %d ran %u of %ld", thread, s, result[s], launches);
  if (!getenv("KEEP_STREAMS"))
    for (auto& s : list) HIP(hipStreamDestroy, s);
  HIP(hipFree, launched);
}

int main(int argc, char** argv) {
  int threads = (int)number(argc, argv, 1, 4), streams = (int)number(argc, argv, 2, 2);
  long launches = number(argc, argv, 3, 1000), every = number(argc, argv, 4, 0);
  int devices = (int)number(argc, argv, 5, 1);
  if (threads < 1 || threads > 16 || streams < 1) {
    fprintf(stderr, "usage: storm [threads 1..16] [streams] [launches] [sync every] [devices]\n");
    return 2;
  }
  if (HIP(hipSetDevice, 0)) return common::report();
  pthread_barrier_init(&ready, nullptr, threads);
  timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; t++) all.emplace_back(run, t, streams, launches, every, devices);
  for (auto& t : all) t.join();
  clock_gettime(CLOCK_MONOTONIC, &to);
  double s = to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9;
  printf("seconds %.3f launches_per_second %.0f\n", s, threads * streams * launches / s);
  return common::report();
}
