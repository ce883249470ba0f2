// counted THREADS: each thread calls hipGetErrorName with 0, 1, 2, …, so that a trace shows whether one is missing, and
// launches a kernel now and then. Ends at SIGTERM.
#include "common.h"

#include <signal.h>
#include <stdlib.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

extern "C" __global__ void counted_kernel() {}

static volatile sig_atomic_t over;

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 2;
  signal(SIGTERM, [](int) { over = 1; });
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; thread++) running.emplace_back([] {
    unsigned calls = 0;
    while (!over) {
      for (int i = 0; i < 50; i++) (void)hipGetErrorName(static_cast<hipError_t>(calls++));
      hipLaunchKernelGGL(counted_kernel, 1, 64, 0, 0);
      timespec pause{0, 1000000};
      nanosleep(&pause, nullptr);
    }
  });
  printf("ready %d\n", getpid());
  fflush(stdout);
  for (auto& thread : running) thread.join();
  (void)hipDeviceSynchronize();
  return 0;
}
