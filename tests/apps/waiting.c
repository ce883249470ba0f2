// Forks children that wait at once, and not for long: none may be interrupted.
//   waiting [children 50]
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const int children = argc > 1 ? atoi(argv[1]) : 50;
  int interrupted = 0, waited = 0, status;
  for (int i = 0; i < children; i++) {
    if (fork()) continue;
    struct epoll_event event;
    int result = epoll_wait(epoll_create1(0), &event, 1, 300);
    _exit(result < 0 && errno == EINTR ? 1 : result < 0 ? 2 : 0);
  }
  for (; wait(&status) > 0; waited++) interrupted += WIFEXITED(status) && WEXITSTATUS(status) == 1;
  printf("waited %d interrupted %d\n", waited, interrupted);
  return waited == children && !interrupted ? 0 : 1;
}
