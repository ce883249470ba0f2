// What a program has from its parent. `inherits set CMD…`: sets all of it to something unusual, as a service
// manager may, and executes CMD. `inherits`: prints all of it, an item a line. No ROCm at all.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char** environ;

static void need(int success, const char* what) {
  if (!success) {
    perror(what);
    exit(2);
  }
}

static void write_file(const char* path, const char* text) {
  int file = open(path, O_WRONLY);
  need(file >= 0 && write(file, text, strlen(text)) > 0 && !close(file), path);
}

static void set(void) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigaddset(&blocked, SIGCHLD);
  sigaddset(&blocked, SIGXFSZ);
  sigprocmask(SIG_SETMASK, &blocked, NULL);
  int ignored[] = {SIGPIPE, SIGHUP, SIGUSR1, SIGINT, SIGXFSZ, SIGALRM, SIGTTOU, SIGCHLD};
  for (unsigned i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
  struct rlimit limits[][2] = {{{RLIMIT_NOFILE}, {333, 4444}}, {{RLIMIT_CORE}, {0, 0}}, {{RLIMIT_MEMLOCK}, {1 << 20, 1 << 23}},
                               {{RLIMIT_STACK}, {3 << 20, RLIM_INFINITY}}, {{RLIMIT_FSIZE}, {1ul << 39, 1ul << 40}}};
  for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) need(!setrlimit(limits[i][0].rlim_cur, &limits[i][1]), "setrlimit");
  umask(027);
  need(!setpriority(PRIO_PROCESS, 0, 5), "setpriority");
  need(!syscall(SYS_ioprio_set, 1, 0, 3 << 13), "ioprio_set");
  need(!prctl(PR_SET_TIMERSLACK, 123456), "timer slack");
  need(personality(ADDR_NO_RANDOMIZE) >= 0, "personality");
  write_file("/proc/self/oom_score_adj", "321");
  write_file("/proc/self/coredump_filter", "0x21");
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &cpus);
  need(!sched_setaffinity(0, sizeof cpus, &cpus), "affinity");
  // Standard input is closed, and these two are open.
  close(0);
  need(!open("/dev/null", O_RDONLY) && dup2(0, 9) == 9 && fcntl(0, F_DUPFD, 100) == 100 && !close(0), "descriptors");
  setenv("INHERITED", "a b\nc=", 1);
  need(!chdir("/proc/sys"), "chdir");
}

// The lines of a file whose beginnings are asked for; all where none is.
static void print_file(const char* path, const char* const* beginnings) {
  FILE* file = fopen(path, "r");
  char line[4096];
  need(file != NULL, path);
  while (fgets(line, sizeof line, file)) {
    int wanted = !beginnings;
    for (const char* const* at = beginnings; at && *at; at++) wanted |= !strncmp(line, *at, strlen(*at));
    if (wanted) printf("%s: %s", path, line);
  }
  fclose(file);
}

static void print(char** arguments) {
  // First: descriptors that are opened here have no numbers that the command could have.
  DIR* directory = opendir("/proc/self/fd");
  for (struct dirent* entry; (entry = readdir(directory));) {
    int number = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && number != dirfd(directory)) printf("descriptor %d flags %x\n", number, fcntl(number, F_GETFL));
  }
  closedir(directory);
  static const char* const status[] = {"Umask", "TracerPid", "Uid", "Gid", "Groups", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm",
                                       "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed", NULL};
  print_file("/proc/self/status", status);
  print_file("/proc/self/limits", NULL);
  print_file("/proc/self/oom_score_adj", NULL);
  print_file("/proc/self/coredump_filter", NULL);
  print_file("/proc/self/cgroup", NULL);
  print_file("/proc/self/loginuid", NULL);
  printf("group %d session %d terminal's group %d\n", getpgrp() == getpgid(getppid()), getsid(0), tcgetpgrp(1));
  printf("nice %d io %ld slack %d personality %d\n", getpriority(PRIO_PROCESS, 0), syscall(SYS_ioprio_get, 1, 0), prctl(PR_GET_TIMERSLACK), personality(-1));
  // Not the signal at a parent's death: no child has that of its parent.
  int reaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &reaper);
  printf("reaper %d dumpable %d securebits %d policy %d\n", reaper, prctl(PR_GET_DUMPABLE), prctl(PR_GET_SECUREBITS), sched_getscheduler(0));
  char path[4096] = {0};
  printf("directory %s\n", getcwd(path, sizeof path));
  for (char** at = arguments; *at; at++) printf("argument %s\n", *at);
  for (char** at = environ; *at; at++) printf("variable %s\n", *at);
}

int main(int count, char** arguments) {
  if (count > 2 && !strcmp(arguments[1], "set")) {
    set();
    execvp(arguments[2], arguments + 2);
    perror(arguments[2]);
    return 127;
  }
  print(arguments);
  return 0;
}
