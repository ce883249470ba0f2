// The first thread ends when it is told to (a line on the standard input, or its end), and a worker goes on: it
// launches kernels one after the other until SIGTERM. Says "ready" when the first one has run, and "alone" when
// one has run without the first thread. A fault of the GPU's count is told.
//   outlived
#include "common.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

extern "C" __global__ void outlived_kernel(unsigned* x) {
  if (threadIdx.x == 0) *x += 1;
}
HOST_KERNEL(outlived_kernel) { *argument<unsigned*>(args, 0) += 1; }

static volatile sig_atomic_t stop = 0;

// Whether the first thread has ended.
static bool is_alone() {
  char state = 0;
  FILE* stat = fopen("/proc/self/stat", "r");
  if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) state = 0;
  if (stat) fclose(stat);
  return state == 'Z';
}

static void say(const char* what) {
  puts(what);
  fflush(stdout);
}

static void work() {
  unsigned *x = nullptr, result = 0, launches = 0;
  HIP(hipMalloc, (void**)&x, sizeof *x);
  HIP(hipMemset, x, 0, sizeof *x);
  COPIED("fill", sizeof *x);
  for (bool alone = false; !stop; launches++) {
    LAUNCH(outlived_kernel, 1, 64, nullptr, x);
    HIP(hipDeviceSynchronize);
    if (launches == 0) say("ready");
    if (!alone && is_alone()) {
      alone = true;
      say("alone");
    }
    usleep(1000);
  }
  HIP(hipMemcpy, &result, x, sizeof *x, hipMemcpyDeviceToHost);
  COPIED("D2H", sizeof *x);
  EXPECT(result == launches, "ran %u of %u", result, launches);
  HIP(hipFree, x);
  _exit(common::report());
}

int main() {
  signal(SIGTERM, [](int) { stop = 1; });
  std::thread(work).detach();
  getchar();
  pthread_exit(nullptr);
}
