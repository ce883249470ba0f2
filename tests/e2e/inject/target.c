// A process to be injected into: `target MODE`. Prints "ready", works until SIGTERM or the end of its
// input, checks its own results all the time and prints "ok COUNT" at the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop, alarms;
static _Atomic unsigned long rounds;

static void fail(const char* what) {
  printf("FAILED %s errno %d\n", what, errno);
  fflush(stdout);
  _exit(9);
}

static void on_term(int s) { (void)s; stop = 1; }
static void on_alarm(int s) { (void)s; alarms++; }

// Works on memory of many sizes, with a pattern that is checked before it is freed.
static void memory(unsigned seed) {
  unsigned char* blocks[16] = {0};
  size_t sizes[16];
  for (int i = 0; i < 64; i++) {
    int at = rand_r(&seed) % 16;
    if (blocks[at]) {
      for (size_t j = 0; j < sizes[at]; j += 97)
        if (blocks[at][j] != (unsigned char)(at + j)) fail("pattern");
      free(blocks[at]);
    }
    sizes[at] = 1 + rand_r(&seed) % (i % 8 == 0 ? 300000 : 3000);
    if (!(blocks[at] = malloc(sizes[at]))) fail("malloc");
    for (size_t j = 0; j < sizes[at]; j += 97) blocks[at][j] = (unsigned char)(at + j);
  }
  for (int i = 0; i < 16; i++) free(blocks[i]);
}

// In registers, floating point and vectors: a wrong register shows.
static void arithmetic(void) {
  double sum = 0;
  uint64_t hash = 1469598103934665603ull;
  for (int i = 1; i <= 20000; i++) {
    sum += 1.0 / i;
    hash = (hash ^ (uint64_t)i) * 1099511628211ull;
  }
  static double expected_sum;
  static uint64_t expected_hash;
  if (expected_hash == 0) { expected_sum = sum; expected_hash = hash; }
  if (sum != expected_sum || hash != expected_hash) fail("arithmetic");
}

static void* worker(void* argument) {
  unsigned seed = (unsigned)(uintptr_t)argument;
  while (!stop) {
    memory(seed++);
    arithmetic();
    if (seed % 8 == 0) {
      void* library = dlopen("libm.so.6", RTLD_NOW);
      if (!library || !dlsym(library, "cos")) fail("dlopen");
      dlclose(library);
    }
    rounds++;
  }
  return NULL;
}

// From here on system call `number` fails with `error`.
static void forbid(unsigned number, unsigned error) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) fail("seccomp");
}

// Waits for what never comes, and is killed, with its process, for whatever else it calls. Others are not.
static void* confined_reader(void* argument) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  // SIGTERM comes here while the first thread, which was just let go, has not run again: rt_sigreturn would kill.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) fail("seccomp");
  char byte;
  while (!stop) (void)!read(*(int*)argument, &byte, 1);
  return NULL;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void* waits(void* argument) {
  pthread_mutex_lock(&held);
  pthread_mutex_unlock(&held);
  return argument;
}

// Each change of the user is made in every thread, and waited for: a signal of libc's that came to nothing would hang it.
static void changes_user(void) {
  pthread_t threads[4];
  pthread_mutex_lock(&held);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, waits, NULL);
  puts("ready"), fflush(stdout);
  for (; !stop; rounds++)
    if (seteuid(geteuid())) fail("seteuid");
  pthread_mutex_unlock(&held);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

// Every millisecond a signal that all threads block and one reads: it ends the process wherever it is not blocked.
static void reads_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  int signals = signalfd(-1, &set, 0);
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
  struct itimerspec every = {{0, 1000000}, {0, 1000000}};
  timer_t timer;
  if (signals < 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &every, NULL)) fail("timer");
  puts("ready"), fflush(stdout);
  struct signalfd_siginfo information;
  for (; !stop; rounds++)
    if (read(signals, &information, sizeof information) < 0 && !stop) fail("signalfd");
}

// Writes a MiB into a pipe of 64 KiB, which is read when the file is there: how much is written is how much there is.
static void transfers(const char* file) {
  static char bytes[1 << 20];
  int pipes[2];
  if (pipe(pipes)) fail("pipe");
  pid_t child = fork();
  if (!child) {
    close(pipes[1]);
    while (access(file, F_OK)) usleep(1000);
    while (read(pipes[0], bytes, sizeof bytes) > 0);
    _exit(0);
  }
  puts("ready"), fflush(stdout);
  if (write(pipes[1], bytes, sizeof bytes) != sizeof bytes) fail("write returned early");
  close(pipes[1]);
  waitpid(child, NULL, 0);
  while (!stop) usleep(10000);
}

// Has no standard input and error, and writes to that all the same.
static void writes_nowhere(void) {
  close(0), close(2);
  puts("ready"), fflush(stdout);
  for (; !stop; rounds++)
    if (write(2, "lost", 4) == -1 && errno != EBADF) fail("write");
}

// Waits in one call all the time, on sockets that have timeouts: there a stop alone interrupts.
static void waits_on_sockets(const char* call) {
  int pair[2], listening = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
  struct timeval minute = {60, 0};
  // A name that the kernel chooses.
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  socklen_t length = sizeof name.sun_family;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || bind(listening, (void*)&name, length)) fail("socket");
  length = sizeof name;
  if (listen(listening, 0) || getsockname(listening, (void*)&name, &length)) fail("listen");
  int* all[] = {&pair[0], &listening, &second};
  for (int i = 0; i < 3; i++) {
    setsockopt(*all[i], SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
    setsockopt(*all[i], SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof minute);
  }
  static char bytes[4096];
  struct iovec parts = {bytes, sizeof bytes};
  struct msghdr message = {.msg_iov = &parts, .msg_iovlen = 1};
  int sends = !strcmp(call, "write") || !strcmp(call, "writev") || !strcmp(call, "sendmsg");
  while (sends && send(pair[0], bytes, sizeof bytes, MSG_DONTWAIT) > 0);
  // The one connection that may wait to be accepted.
  int first = socket(AF_UNIX, SOCK_STREAM, 0);
  if (!strcmp(call, "connect") && connect(first, (void*)&name, length)) fail("connect");
  while (!stop) {
    ssize_t n = -1;
    if (!strcmp(call, "read")) n = read(pair[0], bytes, 1);
    else if (!strcmp(call, "readv")) n = readv(pair[0], &parts, 1);
    else if (!strcmp(call, "recvmsg")) n = recvmsg(pair[0], &message, 0);
    else if (!strcmp(call, "accept")) n = accept(listening, NULL, NULL);
    else if (!strcmp(call, "accept4")) n = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    else if (!strcmp(call, "connect")) n = connect(second, (void*)&name, length);
    else if (!strcmp(call, "write")) n = write(pair[0], bytes, 1);
    else if (!strcmp(call, "writev")) n = writev(pair[0], &parts, 1);
    else if (!strcmp(call, "sendmsg")) n = sendmsg(pair[0], &message, 0);
    else fail("call");
    if (!stop) { printf("%s returned %zd\n", call, n), fail("a call on a socket returned"); }
  }
}

static volatile char dispatch = SYSCALL_DISPATCH_FILTER_ALLOW;

static void on_system_call(int s) {
  (void)s;
  dispatch = SYSCALL_DISPATCH_FILTER_ALLOW;
  fail("a system call was handed to the program");
}

static void on_end(int s) {
  // The return of a handler is a system call.
  dispatch = SYSCALL_DISPATCH_FILTER_ALLOW;
  on_term(s);
}

static void* waits_for_the_end(void* nothing) {
  while (!stop) usleep(10000);
  return nothing;
}

// Has the kernel hand all system calls of this thread to the program, as Wine does with those of Windows' code.
static void handles_system_calls(int others) {
  pthread_t other;
  if (others) pthread_create(&other, NULL, waits_for_the_end, NULL);
  struct sigaction call = {.sa_handler = on_system_call}, end = {.sa_handler = on_end};
  sigaction(SIGSYS, &call, NULL);
  sigaction(SIGTERM, &end, NULL);
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &dispatch)) fail("prctl");
  puts("ready"), fflush(stdout);
  dispatch = SYSCALL_DISPATCH_FILTER_BLOCK;
  while (!stop) rounds++;
  dispatch = SYSCALL_DISPATCH_FILTER_ALLOW;
  if (others) pthread_join(other, NULL);
}

int main(int count, char** arguments) {
  const char* mode = count > 1 ? arguments[1] : "threads";
  // Without SA_RESTART: it ends what waits.
  struct sigaction term = {.sa_handler = on_term};
  sigaction(SIGTERM, &term, NULL);
  arithmetic();
  if (!strcmp(mode, "confined")) forbid(SYS_memfd_create, EPERM), mode = "threads";
  if (!strcmp(mode, "crowded")) {
    // No more threads, of a user who is allowed no more than this.
    struct rlimit one = {1, 1};
    if (setrlimit(RLIMIT_NPROC, &one) || setuid(54321)) fail("setuid");
    mode = "epoll";
  }
  if (!strcmp(mode, "contained")) forbid(SYS_clone3, ENOSYS), mode = "threads";
  if (!strcmp(mode, "threads")) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, worker, (void*)(i * 1000));
    puts("ready"), fflush(stdout);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  } else if (!strcmp(mode, "single") || !strcmp(mode, "reader")) {
    pthread_t reader;
    int pipes[2];
    if (pipe(pipes)) fail("pipe");
    if (!strcmp(mode, "reader")) pthread_create(&reader, NULL, confined_reader, pipes);
    puts("ready"), fflush(stdout);
    worker((void*)7);
  } else if (!strcmp(mode, "signals")) {
    // Every millisecond a signal; each one must arrive, interrupted or not.
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every, NULL);
    puts("ready"), fflush(stdout);
    worker((void*)9);
    if (alarms == 0) fail("no alarm");
  } else if (!strcmp(mode, "epoll")) {
    int epoll = epoll_create1(0), pipes[2];
    if (pipe(pipes)) fail("pipe");
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event);
    puts("ready"), fflush(stdout);
    while (!stop) {
      int n = epoll_wait(epoll, &event, 1, 60000);
      if (n < 0 && errno == EINTR && !stop) fail("epoll_wait was interrupted");
      rounds++;
    }
  } else if (!strcmp(mode, "sleep")) {
    puts("ready"), fflush(stdout);
    while (!stop) {
      struct timespec time = {0, 300000000}, before, after;
      clock_gettime(CLOCK_MONOTONIC, &before);
      int result = nanosleep(&time, NULL);
      clock_gettime(CLOCK_MONOTONIC, &after);
      double slept = (after.tv_sec - before.tv_sec) + (after.tv_nsec - before.tv_nsec) / 1e9;
      if (!stop && (result || slept < 0.3)) fail("nanosleep");
      rounds++;
    }
  } else if (!strcmp(mode, "futex")) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    puts("ready"), fflush(stdout);
    while (!stop) {
      struct timespec until;
      clock_gettime(CLOCK_REALTIME, &until);
      until.tv_nsec += 200000000;
      if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
      int result = pthread_cond_timedwait(&condition, &mutex, &until);
      if (result != ETIMEDOUT && !stop) fail("cond_timedwait");
      rounds++;
    }
  } else if (!strcmp(mode, "read")) {
    int pipes[2];
    if (pipe(pipes)) fail("pipe");
    puts("ready"), fflush(stdout);
    char byte;
    while (!stop) {
      ssize_t n = read(pipes[0], &byte, 1);
      if (n < 0 && !stop) fail("read was interrupted");
    }
  } else if (!strcmp(mode, "user")) {
    changes_user();
  } else if (!strcmp(mode, "dispatched") || !strcmp(mode, "dispatches")) {
    handles_system_calls(!strcmp(mode, "dispatches"));
  } else if (!strcmp(mode, "rtmin")) {
    reads_signals();
  } else if (!strncmp(mode, "transfer:", 9)) {
    transfers(mode + 9);
  } else if (!strcmp(mode, "closed")) {
    writes_nowhere();
  } else if (!strncmp(mode, "timeout:", 8)) {
    puts("ready"), fflush(stdout);
    waits_on_sockets(mode + 8);
  } else if (!strcmp(mode, "ring")) {
    struct io_uring_params parameters = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);
    if (ring < 0) fail("io_uring_setup");
    puts("ready"), fflush(stdout);
    while (!stop)
      if (syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 && !stop)
        fail("io_uring_enter was interrupted");
  } else {
    fail("mode");
  }
  printf("ok %lu\n", rounds);
  return 0;
}
