// A thread that is not the first one executes a program: `thread_exec program [arguments…]`. No ROCm itself.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void* run(void* arguments) {
  execv(*(char**)arguments, arguments);
  perror("execv");
  _exit(127);
}

int main(int count, char** arguments) {
  pthread_t thread;
  if (count < 2 || pthread_create(&thread, NULL, run, arguments + 1)) return 2;
  pthread_join(thread, NULL);
  return 2;
}
