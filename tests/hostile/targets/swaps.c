/* Has a memfd that it may only read, descriptor 3. As soon as new memfds appear in it, which roctap has it
   make, it puts that in their place. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* The next two numbers that are free. */
enum { MEMORY = 4, LIBRARY = 5 };

static void *swap(void *arg) {
    for (;;) {
        for (int fd = MEMORY; fd <= LIBRARY; fd++) {
            if (fcntl(fd, F_GETFD) >= 0) {
                dup2(3, fd);
            }
        }
    }
    return arg;
}

int main(void) {
    pthread_t thread;
    for (int fd = MEMORY; fd < 64; fd++) {
        close(fd);
    }
    pthread_create(&thread, NULL, swap, NULL);
    if (write(1, "ready\n", 6) != 6) {
        return 1;
    }
    for (;;) {
        pause();
    }
}
