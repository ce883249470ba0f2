// Stands for the shim: says that it was called, on which kind of thread, and does what the protocol
// asks of a shim: answers, waits for the started thread to be gone, and removes the block.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct attach {
  uint64_t version, status, memory_fd, tables[2], block, block_bytes, thread_alive;
};

static __thread uint64_t initialised = 0x0123456789abcdef;
static int calls;

void* roctap_attach(struct attach* attach) {
  struct attach copy = *attach;
  uint64_t answer[8] = {0x70617463, (uint64_t)getpid(), (uint64_t)gettid(), initialised, (uint64_t)++calls};
  // A real thread of the process: libc works on it.
  void* memory = malloc(100000);
  answer[5] = memory != NULL && strlen(strerror(ENOENT)) > 0 && localeconv() != NULL;
  free(memory);
  answer[6] = (uint64_t)getpriority(PRIO_PROCESS, 0);
  int wrote = pwrite(copy.memory_fd, answer, sizeof answer, 0) == sizeof answer;
  close(copy.memory_fd);
  __atomic_store_n(&attach->status, wrote ? 1 : 3, __ATOMIC_RELEASE);
  for (int i = 0; i < 100000 && __atomic_load_n((uint32_t*)copy.thread_alive, __ATOMIC_ACQUIRE); i++)
    usleep(100);
  munmap((void*)copy.block, copy.block_bytes);
  return NULL;
}

static long raw(long number, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

// Called on a thread that libc does not know: calls nothing of it. The block stays.
void roctap_attach_again(struct attach* attach) {
  uint64_t answer[8] = {0x70617463, 0, (uint64_t)raw(SYS_gettid, 0, 0, 0, 0), initialised, (uint64_t)++calls};
  // The system call gives 20 less the value.
  answer[6] = (uint64_t)(20 - raw(SYS_getpriority, PRIO_PROCESS, 0, 0, 0));
  int wrote = raw(SYS_pwrite64, attach->memory_fd, (long)answer, sizeof answer, 0) == sizeof answer;
  raw(SYS_close, attach->memory_fd, 0, 0, 0);
  __atomic_store_n(&attach->status, wrote ? 1 : 3, __ATOMIC_RELEASE);
}
