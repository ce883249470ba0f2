// Brings its own HIP runtime: `late_library library [threads [rounds]]`. Says "ready", and when it is told to (a line
// on its standard input) loads the library and has all threads call it at once. Prints how often.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

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

int main(int count, char** arguments) {
  if (count < 2) return 2;
  int threads = count > 2 ? atoi(arguments[2]) : 4;
  rounds = count > 3 ? atoi(arguments[3]) : 25;
  puts("ready");
  fflush(stdout);
  getchar();
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
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
