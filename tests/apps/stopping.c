// Preloaded into a program: if its first argument is that of STOP_BEFORE, it stops before it begins, until
// SIGCONT comes.
#include <signal.h>
#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void stop(int argc, char** argv) {
  const char* argument = getenv("STOP_BEFORE");
  if (argument && argc > 1 && !strcmp(argv[1], argument)) raise(SIGSTOP);
}
