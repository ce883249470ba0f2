// Forks workers that use the GPU, which the parent does not, as Python's multiprocessing does.
//   workers [number, 0 for one after the other until SIGTERM] [launches of each]
// Prints "ready <pid>" before the first one. The workers' reports come before the parent's.
#include "common.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" __global__ void worker_kernel(unsigned* x) {
  if (threadIdx.x == 0) *x += 1;
}
HOST_KERNEL(worker_kernel) { *argument<unsigned*>(args, 0) += 1; }

static volatile sig_atomic_t stop = 0;

static int work(unsigned launches) {
  unsigned *x = nullptr, result = 0;
  if (HIP(hipMalloc, (void**)&x, sizeof *x)) return common::report();
  HIP(hipMemset, x, 0, sizeof *x);
  COPIED("fill", sizeof *x);
  for (unsigned i = 0; i < launches; i++) LAUNCH(worker_kernel, 1, 64, nullptr, x);
  HIP(hipMemcpy, &result, x, sizeof *x, hipMemcpyDeviceToHost);
  COPIED("D2H", sizeof *x);
  EXPECT(result == launches, "ran %u of %u", result, launches);
  HIP(hipFree, x);
  return common::report();
}

int main(int argc, char** argv) {
  const long workers = number(argc, argv, 1, 2);
  const unsigned launches = (unsigned)number(argc, argv, 2, 100);
  signal(SIGTERM, [](int) { stop = 1; });
  printf("ready %d\n", getpid());
  fflush(stdout);
  for (long i = 0; (workers == 0 || i < workers) && !stop; i++) {
    pid_t child = fork();
    if (child == 0) _exit(work(launches));
    int status = -1;
    pid_t ended;
    do ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    EXPECT(child > 0 && ended == child, "no worker");
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a worker ended with status %#x", status);
  }
  return common::report();
}
