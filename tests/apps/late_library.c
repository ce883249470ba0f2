// Brings its own HIP runtime: `late_library library [threads [rounds]]`. Says "ready", and when it is told to (a line
// on its standard input) loads the library and has all threads call it at once. Prints how often. With MEMORY set it
// loads a copy that is in memory alone.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

static int (*allocate)(void**, size_t), (*release)(void*);
static int rounds;

static void* work(void* unused) {
  for (int i = 0; i < rounds; i++) {
    void* memory;
    if (allocate(&memory, 4096) || release(memory)) {
      puts("FAILED");
      exit(1);
    }
  }
  return unused;
}

// The path of a copy without a name, or NULL.
static const char* copy_into_memory(const char* path) {
  static char copied[64];
  int file = open(path, O_RDONLY), copy = memfd_create("backend", 0);
  struct stat status;
  if (file < 0 || copy < 0 || fstat(file, &status)) return NULL;
  while (status.st_size > 0) {
    ssize_t sent = sendfile(copy, file, NULL, status.st_size);
    if (sent <= 0) return NULL;
    status.st_size -= sent;
  }
  snprintf(copied, sizeof copied, "/proc/self/fd/%d", copy);
  return copied;
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  int threads = count > 2 ? atoi(arguments[2]) : 4;
  rounds = count > 3 ? atoi(arguments[3]) : 25;
  puts("ready");
  fflush(stdout);
  getchar();
  const char* path = getenv("MEMORY") ? copy_into_memory(arguments[1]) : arguments[1];
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    printf("FAILED %s\n", dlerror());
    return 1;
  }
  allocate = dlsym(library, "hipMalloc");
  release = dlsym(library, "hipFree");
  pthread_t all[threads];
  for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, work, NULL);
  for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
  printf("count hipMalloc %d\ncount hipFree %d\n", threads * rounds, threads * rounds);
  return 0;
}
