// Preloaded into a program, attaches the shim to it when told to: what roctap does from outside, without
// the injection. Reads commands from standard input, which is a socket, and answers each:
//   attach SHIM MEMORY own|block [WRONG]        the status, or "-" when the block is the shim's
//   runtime 0|1                                 attaches to a runtime in a namespace of its own from now on, or to
//                                               the program's; the answer is "-"
//   lock BYTES                                  has all that is mapped from now on locked into memory, and
//                                               sets the limit for it, without the right to exceed it; BYTES
//                                               of -1: none. The answer is "-"
//   go                                          lets main begin, if ROCTAP_TEST_WAIT is set; no answer
// With "own" the request stays ours and the answer waits for it. WRONG is added to the tables' addresses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/capability.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct attach {
  uint64_t version, status, memory_fd, core_table, amd_ext_table;
  uint64_t block, block_bytes, thread_alive;
};

struct block {
  struct attach attach;
  uint32_t alive;
};

// The table behind an exported stub: mov TABLE(%rip),%rax; jmp *OFFSET(%rax).
static uint64_t table(void* library, const char* name) {
  const unsigned char* code = library ? dlsym(library, name) : NULL;
  if (!code || code[0] != 0x48 || code[1] != 0x8b || code[2] != 0x05) return 0;
  int32_t displacement;
  memcpy(&displacement, code + 3, 4);
  return *(uint64_t*)(code + 7 + displacement);
}

// Stands before the runtime's. With ROCTAP_TEST_LATE_FREEZE=µs the thread has taken the function from the
// table already, and comes to execute it only later, as when it has no CPU.
uint32_t hsa_executable_freeze(uint64_t executable, const char* options) {
  const uint64_t core = table(RTLD_NEXT, "hsa_executable_freeze");
  const char* late_us = getenv("ROCTAP_TEST_LATE_FREEZE");
  uint32_t (*freeze)(uint64_t, const char*);
  if (!core) abort();
  memcpy(&freeze, (const char*)core + 704, sizeof freeze);
  if (late_us) usleep((useconds_t)atoi(late_us));
  return freeze(executable, options);
}

static void* other_runtime;
static int use_other_runtime;

static void detached(void* (*run)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &attributes, run, argument)) abort();
  pthread_attr_destroy(&attributes);
}

// While ROCTAP_TEST_NO_MEMORY is set, the shim gets none.
static struct {
  uintptr_t begin, end;
  int look;
} shims_code;
static _Atomic unsigned long refused;

static int is_shims(struct dl_phdr_info* info, size_t size, void* unused) {
  (void)size, (void)unused;
  if (!info->dlpi_name || !strstr(info->dlpi_name, "libroctap_shim")) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
      shims_code.end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
      __atomic_store_n(&shims_code.begin, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                       __ATOMIC_RELEASE);
    }
  return 1;
}

// The shim has been loaded: from now on it has no memory.
static void find_shim(void) {
  if (shims_code.look && !__atomic_load_n(&shims_code.begin, __ATOMIC_ACQUIRE))
    dl_iterate_phdr(is_shims, NULL);
}

static int has_none(void* caller) {
  const uintptr_t begin = __atomic_load_n(&shims_code.begin, __ATOMIC_ACQUIRE);
  const uintptr_t at = (uintptr_t)caller;
  if (!begin || at < begin || at >= shims_code.end) return 0;
  refused++;
  return 1;
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void*, size_t),
    *__libc_memalign(size_t, size_t);
void* malloc(size_t size) {
  return has_none(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  return has_none(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  return has_none(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}
int posix_memalign(void** to, size_t alignment, size_t size) {
  if (has_none(__builtin_return_address(0))) return ENOMEM;
  *to = __libc_memalign(alignment, size);
  return *to ? 0 : ENOMEM;
}

static void attach(const char* shim, const char* memory, int own, uint64_t wrong) {
  char answer[32] = "-\n";
  void* library = dlopen(shim, RTLD_NOW | RTLD_LOCAL);
  void* (*run)(void*) = library ? (void* (*)(void*))dlsym(library, "roctap_attach") : NULL;
  const uint64_t* protocol = library ? dlsym(library, "ROCTAP_SHIM_PROTOCOL") : NULL;
  void* hsa = dlopen("libhsa-runtime64.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* hooked = use_other_runtime ? other_runtime : hsa;
  struct block* block =
      mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!run || !protocol || block == MAP_FAILED) abort();
  find_shim();
  struct attach request = {
      .version = *protocol, .memory_fd = (uint64_t)open(memory, O_RDWR),
      .core_table = table(hooked, "hsa_init") + wrong,
      .amd_ext_table = table(hooked, "hsa_amd_profiling_set_profiler_enabled") + wrong,
      .block = (uint64_t)block, .block_bytes = own ? 0 : 8192,
      .thread_alive = (uint64_t)&block->alive,
  };
  block->attach = request;
  block->alive = 1;
  detached(run, &block->attach);
  if (own) {
    uint64_t status;
    while (!(status = __atomic_load_n(&block->attach.status, __ATOMIC_ACQUIRE))) usleep(200);
    snprintf(answer, sizeof answer, "%lu\n", (unsigned long)status);
    usleep(20000);
    munmap(block, 8192);
  } else {
    usleep(2000);
    // The last that anybody but the shim does with the block.
    __atomic_store_n(&block->alive, 0, __ATOMIC_RELEASE);
  }
  if (hsa) dlclose(hsa);
  if (write(0, answer, strlen(answer)) < 0) return;
}

static void another(int use) {
  if (!other_runtime) other_runtime = dlmopen(LM_ID_NEWLM, "libhsa-runtime64.so.1", RTLD_NOW);
  if (!other_runtime) abort();
  use_other_runtime = use;
  if (write(0, "-\n", 2) < 0) return;
}

static void lock_memory(long long bytes) {
  struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2];
  // Of this thread, and of those that it starts.
  if (bytes >= 0 && !syscall(SYS_capget, &header, sets)) {
    sets[0].effective &= ~(1u << CAP_IPC_LOCK);
    sets[0].permitted &= ~(1u << CAP_IPC_LOCK);
    syscall(SYS_capset, &header, sets);
  }
  const char* answer = "-\n";
  if ((bytes >= 0 && setrlimit(RLIMIT_MEMLOCK, &limit)) || mlockall(bytes == -2 ? MCL_CURRENT | MCL_FUTURE : MCL_FUTURE)) answer = "no\n";
  if (write(0, answer, strlen(answer)) < 0) return;
}

static sem_t may_begin;

static void* serve(void* unused) {
  long long bytes;
  char line[4096], shim[1024], memory[1024], whose[16];
  unsigned long wrong;
  size_t length = 0;
  for (;;) {
    if (length + 1 == sizeof line || read(0, line + length, 1) != 1) return unused;
    if (line[length++] != '\n') continue;
    line[length] = 0;
    length = 0;
    wrong = 0;
    if (!strcmp(line, "go\n")) sem_post(&may_begin);
    if (!strncmp(line, "runtime ", 8)) another(line[8] == '1');
    if (sscanf(line, "lock %lld", &bytes) == 1) lock_memory(bytes);
    if (!strcmp(line, "refused\n")) {
      char answer[32];
      snprintf(answer, sizeof answer, "%lu\n", refused);
      if (write(0, answer, strlen(answer)) < 0) return unused;
    }
    if (sscanf(line, "attach %1023s %1023s %15s %lu", shim, memory, whose, &wrong) >= 3)
      attach(shim, memory, whose[0] == 'o', wrong);
  }
}

__attribute__((constructor)) static void begin(void) {
  if (!getenv("ROCTAP_TEST_AGENT")) return;
  unsetenv("ROCTAP_TEST_AGENT");
  shims_code.look = getenv("ROCTAP_TEST_NO_MEMORY") != NULL;
  sem_init(&may_begin, 0, 0);
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  detached(serve, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (getenv("ROCTAP_TEST_WAIT")) sem_wait(&may_begin);
}
