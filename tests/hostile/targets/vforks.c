/* Says that it is there, with the id of a child that shares its memory, and waits in vfork for that child,
   which does nothing for ever. The child ends with it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void) {
    if (vfork() == 0) {
        char text[32];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (write(1, text, snprintf(text, sizeof text, "ready %d\n", getpid())) < 0) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    return 1;
}
