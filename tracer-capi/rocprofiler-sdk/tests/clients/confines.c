// Preloaded: at SIGUSR1 a seccomp filter is put into all threads. It kills for every system call but those that
// docs/attach.md says are made where a tool is put in, and those that the program, the runtime and the emulated GPU make.
// CONFINES_WITHOUT is the number of one that is not allowed either.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int of_roctap[] = {
    SYS_mmap,     SYS_mprotect,       SYS_munmap,     SYS_clone,          SYS_clone3,    SYS_memfd_create, SYS_gettid,
    SYS_getpid,   SYS_nanosleep,      SYS_futex,      SYS_exit,           SYS_close,     SYS_openat,       SYS_read,
    SYS_write,    SYS_pread64,        SYS_fstat,      SYS_newfstatat,     SYS_fcntl,     SYS_rt_sigprocmask,
    SYS_set_robust_list, SYS_rseq,    SYS_madvise,    SYS_flock,          SYS_prctl,     SYS_clock_nanosleep,
    SYS_getrandom, SYS_getdents64,    SYS_lseek,      SYS_readlink,       SYS_mremap,    SYS_statx};
static const int of_the_program[] = {SYS_rt_sigreturn, SYS_exit_group, SYS_process_vm_readv, SYS_sched_yield,
                                     SYS_ioctl,        SYS_brk,        SYS_rt_sigaction,     SYS_seccomp,
                                     SYS_sched_getaffinity, SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy,
                                     SYS_fallocate,    SYS_prlimit64};

static int without = -1;

static void confine(int signal) {
  (void)signal;
  static struct sock_filter filter[128] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short count = 1;
  for (size_t i = 0; i < sizeof of_roctap / sizeof *of_roctap + sizeof of_the_program / sizeof *of_the_program; i++) {
    const size_t roctaps = sizeof of_roctap / sizeof *of_roctap;
    const int call = i < roctaps ? of_roctap[i] : of_the_program[i - roctaps];
    if (call == without) continue;
    filter[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  filter[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  const struct sock_fprog program = {count, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) {
    abort();
  }
}

__attribute__((constructor)) static void prepare(void) {
  const char* named = getenv("CONFINES_WITHOUT");
  if (named) without = atoi(named);
  signal(SIGUSR1, confine);
}
