// Two threads whose numbers differ by 4096: while the second waits for a kernel inside of hipFree, which calls
// HSA before and after, the first ends. `neighbours`, as root, who can choose numbers. Needs the emulated GPU.
#include "common.h"

#include <pthread.h>
#include <unistd.h>

static const int APART = 4096, LOW = 2000, TRIES = 1000;
static std::atomic<int> first, second, ends;
static std::atomic<bool> frees;

extern "C" __global__ void neighbours_kernel(unsigned*) {}
HOST_KERNEL(neighbours_kernel) {
  while (!frees) usleep(1000);
  // It spins in there: nothing tells that it has come so far.
  usleep(100000);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d", (int)first);
  // When nobody sees it any more all of its end is behind it.
  for (ends = 1; !access(path, F_OK);) usleep(1000);
}

static void* run_first(void* none) {
  int device;
  HIP(hipGetDevice, &device);
  first = gettid();
  while (!ends) usleep(1000);
  return none;
}

static void* run_second(void* none) {
  second = gettid();
  if (second != first + APART) return none;
  unsigned* x = nullptr;
  HIP(hipMalloc, (void**)&x, sizeof *x);
  LAUNCH(neighbours_kernel, 1, 64, nullptr, x);
  frees = true;
  HIP(hipFree, x);
  return none;
}

// Has the next thread have this number, unless somebody else is faster.
static void choose(int number) {
  FILE* last = fopen("/proc/sys/kernel/ns_last_pid", "w");
  EXPECT(last && fprintf(last, "%d", number - 1) > 0, "ns_last_pid cannot be written");
  if (last) fclose(last);
}

int main() {
  pthread_t one, other;
  HIP(hipSetDevice, 0);
  // Low enough for another one above it.
  choose(LOW);
  pthread_create(&one, nullptr, run_first, nullptr);
  while (!first) usleep(1000);
  for (int tries = 0; tries < TRIES && !ends; tries++) {
    choose(first + APART);
    pthread_create(&other, nullptr, run_second, nullptr);
    pthread_join(other, nullptr);
  }
  EXPECT(ends, "number %d was never free", first + APART);
  ends = 1;
  pthread_join(one, nullptr);
  return common::report();
}
