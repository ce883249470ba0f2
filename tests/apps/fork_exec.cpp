// The parent uses the GPU, forks, and goes on; the child executes another program.
//   fork_exec program [arguments…]
// The child's report comes before the parent's.
#include "common.h"

#include <sys/wait.h>
#include <unistd.h>

extern "C" __global__ void parent_kernel(unsigned* x) {
  if (threadIdx.x == 0) *x += 1;
}
HOST_KERNEL(parent_kernel) { *argument<unsigned*>(args, 0) += 1; }

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: fork_exec program [arguments...]\n");
    return 2;
  }
  unsigned *x = nullptr, result = 0;
  const unsigned launches = 200;
  if (HIP(hipMalloc, (void**)&x, sizeof *x)) return common::report();
  HIP(hipMemset, x, 0, sizeof *x);
  COPIED("fill", sizeof *x);
  for (unsigned i = 0; i < launches / 2; i++) LAUNCH(parent_kernel, 1, 64, nullptr, x);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    execv(argv[1], argv + 1);
    perror(argv[1]);
    _exit(127);
  }
  printf("child_pid %d\nparent_pid %d\n", child, getpid());
  for (unsigned i = launches / 2; i < launches; i++) LAUNCH(parent_kernel, 1, 64, nullptr, x);
  HIP(hipDeviceSynchronize);
  HIP(hipMemcpy, &result, x, sizeof *x, hipMemcpyDeviceToHost);
  COPIED("D2H", sizeof *x);
  EXPECT(result == launches, "ran %u of %u", result, launches);
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child, "no child");
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %#x", status);
  HIP(hipFree, x);
  return common::report();
}
