// Forks children, one after the other, that call HIP once and end at once, as workers that find nothing to do.
//   brief_children [number 50]
// Prints "children <number>".
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const char* hipGetErrorName(int error);

int main(int count, char** arguments) {
  const int number = count > 1 ? atoi(arguments[1]) : 50;
  hipGetErrorName(0);
  for (int i = 0; i < number; i++) {
    const pid_t child = fork();
    if (child == 0) {
      hipGetErrorName(0);
      _exit(0);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  printf("children %d\n", number);
  return 0;
}
