/* Calls `hsa_init` of the library that is named, again and again, and ends with status 1 as soon as that
   returns something else than it should. Told to, by a line, it has a child that ends at once, and tells
   its number. */
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    void *library = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    unsigned (*function)(void) = library ? (unsigned (*)(void))dlsym(library, "hsa_init") : NULL;
    if (!function) {
        return 2;
    }
    unsigned expected = strtoul(arguments[2], NULL, 16);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        char byte;
        for (int i = 0; i < 10; i++) {
            if (function() != expected) {
                return 1;
            }
        }
        if (poll(&input, 1, 1) > 0) {
            if (read(0, &byte, 1) <= 0) {
                return 0;
            }
            pid_t child = fork();
            if (child == 0) {
                _exit(0);
            }
            waitpid(child, NULL, 0);
            printf("%d\n", child);
            fflush(stdout);
        }
    }
}
