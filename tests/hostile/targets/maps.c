/* Says that it is there. Then maps memory for each line that it reads, and says so. */
#include <stdio.h>
#include <sys/mman.h>

int main(void) {
    char line[64];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        void *memory = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        puts(memory == MAP_FAILED ? "FAILED" : "mapped");
        fflush(stdout);
    }
    return 0;
}
