/* Runs a program as the process with a given number, as a user without rights: takes NUMBER PROGRAM … */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    if (count < 3) {
        return 2;
    }
    pid_t number = atoi(arguments[1]);
    struct clone_args how = {
        .exit_signal = SIGCHLD,
        .set_tid = (uintptr_t)&number,
        .set_tid_size = 1,
    };
    long child = syscall(SYS_clone3, &how, sizeof how);
    if (child == 0) {
        if (setgid(65534) || setuid(65534)) {
            _exit(3);
        }
        execv(arguments[2], arguments + 2);
        _exit(4);
    }
    if (child < 0) {
        perror("clone3");
        return 5;
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
}
