// What the benchmarks measure: repeats a call as told on standard input, and answers with the time.
//   hip N            N calls of hipGetErrorName
//   device N         N calls of hipGetDevice, of which HIP tells tracers
//   devices N        the same on each of 8 threads at once; their CPU time together
//   hsa N            N calls of hsa_signal_load_relaxed, through the exported function
//   launch N         N launches of an empty kernel with <<<>>> (3 HIP calls), synchronised after each 512
//   bare N           the same with hipLaunchKernel alone (1 HIP call)
//   rate PER_S SECS  calls of hipGetErrorName at a steady rate
//   flags F          hipSetDeviceFlags: 1 waits actively, 4 blocks
//   wait N PER K     N times PER launches of kernel K (0 to 3: of 2, 20, 200, 2000 us) and a synchronisation
// Each answer is one line: calls, wall ns, ns of the thread's CPU time; of `wait` also the median and the 99th
// percentile of the synchronisations, ns.
#include "common.h"

#include <hsa/hsa.h>
#include <algorithm>
#include <atomic>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

extern "C" __global__ void bench_empty() {}
// EMUGPU_KERNEL_NS says how long these take.
extern "C" __global__ void bench_wait_2() {}
extern "C" __global__ void bench_wait_20() {}
extern "C" __global__ void bench_wait_200() {}
extern "C" __global__ void bench_wait_2000() {}

static uint64_t ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void rate(uint64_t per_second, uint64_t seconds, uint64_t& calls) {
  const uint64_t began = ns(CLOCK_MONOTONIC), end = began + seconds * 1000000000ull;
  for (uint64_t now = began; now < end; now = ns(CLOCK_MONOTONIC)) {
    const uint64_t due = (now - began) * per_second / 1000000000ull;
    for (; calls < due; calls++) hipGetErrorName(hipSuccess);
    timespec pause{0, 200000};
    nanosleep(&pause, nullptr);
  }
}

static std::vector<uint64_t> wait_often(uint64_t rounds, uint64_t launches, uint64_t kernel) {
  void (*const kernels[])() = {bench_wait_2, bench_wait_20, bench_wait_200, bench_wait_2000};
  std::vector<uint64_t> times;
  times.reserve(rounds);
  for (uint64_t round = 0; round < rounds; round++) {
    for (uint64_t i = 0; i < launches; i++) hipLaunchKernelGGL(kernels[kernel % 4], 1, 64, 0, 0);
    const uint64_t began = ns(CLOCK_MONOTONIC);
    (void)hipDeviceSynchronize();
    times.push_back(ns(CLOCK_MONOTONIC) - began);
  }
  return times;
}

// Calls of 8 threads; returns their CPU time.
static uint64_t devices(uint64_t calls_each) {
  std::atomic<uint64_t> cpu_ns{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) threads.emplace_back([&] {
    const uint64_t cpu = ns(CLOCK_THREAD_CPUTIME_ID);
    int device;
    for (uint64_t calls = 0; calls < calls_each; calls++) (void)hipGetDevice(&device);
    cpu_ns += ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
  });
  for (auto& thread : threads) thread.join();
  return cpu_ns;
}

int main() {
  char what[16];
  hsa_signal_t signal{};
  unsigned long long n, seconds, launches = 0, kernel = 0;
  printf("ready %d\n", getpid());
  fflush(stdout);
  while (scanf("%15s %llu", what, &n) == 2) {
    uint64_t calls = 0, of_threads = 0;
    const bool at_rate = !strcmp(what, "rate");
    const bool waits = !strcmp(what, "wait");
    std::vector<uint64_t> times;
    if (at_rate && scanf("%llu", &seconds) != 1) return 2;
    if (waits && scanf("%llu %llu", &launches, &kernel) != 2) return 2;
    if (!strcmp(what, "hsa") && !signal.handle) {
      if (hsa_init() || hsa_signal_create(1, 0, nullptr, &signal)) return 3;
    }
    const uint64_t wall = ns(CLOCK_MONOTONIC), cpu = ns(CLOCK_THREAD_CPUTIME_ID);
    if (at_rate) rate(n, seconds, calls);
    else if (!strcmp(what, "flags")) (void)hipSetDeviceFlags(n);
    else if (waits) times = wait_often(calls = n, launches, kernel);
    else if (!strcmp(what, "hip")) for (; calls < n; calls++) hipGetErrorName(hipSuccess);
    else if (!strcmp(what, "device")) for (int device; calls < n; calls++) (void)hipGetDevice(&device);
    else if (!strcmp(what, "devices")) of_threads = devices(n), calls = 8 * n;
    else if (!strcmp(what, "hsa")) for (; calls < n; calls++) hsa_signal_load_relaxed(signal);
    else if (!strcmp(what, "launch")) {
      for (; calls < n; calls++) {
        hipLaunchKernelGGL(bench_empty, 1, 64, 0, 0);
        if (calls % 512 == 511) (void)hipDeviceSynchronize();
      }
    } else if (!strcmp(what, "bare")) {
      for (; calls < n; calls++) {
        (void)hipLaunchKernel(reinterpret_cast<const void*>(bench_empty), dim3(1), dim3(64), nullptr, 0, 0);
        if (calls % 512 == 511) (void)hipDeviceSynchronize();
      }
    } else return 2;
    const uint64_t cpu_ns = of_threads ? of_threads : ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    printf("%llu %llu %llu", (unsigned long long)calls, (unsigned long long)(ns(CLOCK_MONOTONIC) - wall),
           (unsigned long long)cpu_ns);
    if (!times.empty()) {
      std::sort(times.begin(), times.end());
      printf(" %llu %llu", (unsigned long long)times[times.size() / 2],
             (unsigned long long)times[times.size() * 99 / 100]);
    }
    printf("\n");
    fflush(stdout);
  }
  return 0;
}
