// Maps a file as code, prints "ready", and waits for SIGTERM.
//   mapper map FILE
//   mapper root DIRECTORY   the file /SYSVx of a root directory of its own, as nobody (begun as root)
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void must(int done, const char *what) {
  if (!done) {
    perror(what);
    exit(1);
  }
}

static void own_root(const char *directory) {
  must(unshare(CLONE_NEWNS) == 0, "unshare");
  must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private");
  must(mount("none", directory, "tmpfs", 0, NULL) == 0, "tmpfs");
  must(chdir(directory) == 0, "chdir");
  must(syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
  must(umount2(".", MNT_DETACH) == 0, "umount2");
  must(chmod("/", 0777) == 0 && setgid(65534) == 0 && setuid(65534) == 0, "setuid");
}

int main(int argc, char **argv) {
  must(argc == 3, "usage");
  const char *path = argv[2];
  if (strcmp(argv[1], "root") == 0) {
    own_root(path);
    path = "/SYSVx";
    must(close(open(path, O_CREAT | O_RDWR, 0755)) == 0 && truncate(path, 4096) == 0, path);
  }
  int file = open(path, O_RDONLY);
  must(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0) != MAP_FAILED, "mmap");
  puts("ready");
  fflush(stdout);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, NULL);
  int signal;
  sigwait(&term, &signal);
  return 0;
}
