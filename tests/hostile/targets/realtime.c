/* Preloaded: the thread that calls hipDeviceSynchronize first goes before all others on the first CPU that it
   may use, and leaves it no more. What it starts from then on does not inherit the policy. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

int hipDeviceSynchronize(void) {
    static int done;
    int (*real)(void) = dlsym(RTLD_NEXT, "hipDeviceSynchronize");
    int result = real();
    if (!__sync_lock_test_and_set(&done, 1)) {
        struct sched_param first = {.sched_priority = 1};
        cpu_set_t may, one;
        int cpu = 0;
        sched_getaffinity(0, sizeof may, &may);
        while (!CPU_ISSET(cpu, &may)) {
            cpu++;
        }
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) ||
            sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first)) {
            perror("real time on one CPU");
            abort();
        }
    }
    return result;
}
