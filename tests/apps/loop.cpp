// Launches until the time is up or SIGTERM comes: something to attach to.
//   loop [seconds, 0 for ever] [threads ≤ 8] [launches per second and thread, 0 for flat out] [mappings 0]
// Of so many mappings, and one page more every 10 ms, if it runs for ever.
// Prints "ready <pid>" once all threads have launched, and the counts at the end.
#include "common.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <thread>

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define KERNEL(T)                                                             \
  extern "C" __global__ void loop_t##T(unsigned long* x) {                    \
    if (threadIdx.x == 0) *x += 1;                                            \
  }                                                                           \
  HOST_KERNEL(loop_t##T) { *argument<unsigned long*>(args, 0) += 1; }
EACH(KERNEL)

static std::atomic<bool> stop{false};
static std::atomic<int> started{0};

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static void launch(int thread, hipStream_t stream, unsigned long* x) {
  switch (thread) {
#define CASE(T) case T: LAUNCH(loop_t##T, 1, 64, stream, x); break;
    EACH(CASE)
  }
}

static void run(int thread, double seconds, double rate) {
  unsigned long *x = nullptr, result = 0, launched = 0;
  hipStream_t stream;
  if (HIP(hipMalloc, (void**)&x, sizeof *x) || HIP(hipStreamCreate, &stream)) return;
  HIP(hipMemset, x, 0, sizeof *x);
  COPIED("fill", sizeof *x);
  HIP(hipDeviceSynchronize);
  const double begin = now();
  while (!stop && (seconds <= 0 || now() - begin < seconds)) {
    launch(thread, stream, x);
    if (++launched == 1) started++;
    if (rate > 0) {
      HIP(hipStreamSynchronize, stream);
      double left = begin + launched / rate - now();
      if (left > 0) usleep((useconds_t)(left * 1e6));
    } else if (launched % 100 == 0) {
      HIP(hipStreamSynchronize, stream);
    }
  }
  HIP(hipStreamSynchronize, stream);
  HIP(hipMemcpy, &result, x, sizeof *x, hipMemcpyDeviceToHost);
  COPIED("D2H", sizeof *x);
  EXPECT(result == launched, "thread %d ran %lu of %lu", thread, result, launched);
  HIP(hipStreamDestroy, stream);
  HIP(hipFree, x);
}

// Each is one of its own: its neighbours may be written to.
static void map(long count) {
  const size_t page = 4096;
  char* room = (char*)mmap(nullptr, count * page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT(room != MAP_FAILED, "no room for %ld mappings", count);
  for (long i = 0; i < count; i += 2) EXPECT(!mprotect(room + i * page, page, PROT_READ), "mapping %ld", i);
}

int main(int argc, char** argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 2, rate = argc > 3 ? atof(argv[3]) : 0;
  int threads = (int)number(argc, argv, 2, 1);
  if (threads < 1 || threads > 8) {
    fprintf(stderr, "usage: loop [seconds] [threads 1..8] [rate]\n");
    return 2;
  }
  const long mappings = number(argc, argv, 4, 0);
  if (mappings > 0) map(mappings);
  signal(SIGTERM, [](int) { stop = true; });
  if (HIP(hipSetDevice, 0)) return common::report();
  std::vector<std::thread> all;
  for (int t = 0; t < threads; t++) all.emplace_back(run, t, seconds, rate);
  // A thread that is told to stop before its first launch makes none.
  while (started < threads && !stop && common::failure().empty()) usleep(1000);
  printf("ready %d\n", getpid());
  fflush(stdout);
  for (; mappings > 0 && seconds <= 0 && !stop; usleep(10000))
    mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (auto& t : all) t.join();
  return common::report();
}
