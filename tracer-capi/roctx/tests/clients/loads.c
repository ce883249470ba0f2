// A client that loads the library, whose path is its argument, finds functions by name and version, and
// unloads it, again and again, also with a thread that has used it still there.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"

typedef int (*push_t)(const char*);
typedef uint64_t (*start_t)(const char*);

// ISO C has no conversion from a pointer to one of a function.
#define FUNCTION(type, name, pointer) \
  type name;                          \
  *(void**)(&name) = (pointer)

static push_t current;
static pthread_barrier_t barrier;

static void* stays(void* argument) {
  (void)argument;
  for (int i = 0; i < 3; i++) {
    pthread_barrier_wait(&barrier);
    CHECK(current("range") == 0);
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

int main(int count, char** arguments) {
  CHECK(count == 2);
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, stays, NULL) == 0);
  for (int i = 0; i < 3; i++) {
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    FUNCTION(push_t, push, dlvsym(library, "roctxRangePushA", "ROCTX_4.1"));
    FUNCTION(push_t, unversioned, dlsym(library, "roctxRangePushA"));
    FUNCTION(start_t, start, dlvsym(library, "roctxRangeStartA", "ROCTX_4.1"));
    CHECK(push != NULL && push == unversioned && start != NULL);
    CHECK(dlvsym(library, "roctxRangePushA", "ROCTRACER_4.1") == NULL);
    CHECK(dlsym(library, "rust_eh_personality") == NULL);
    CHECK(push("range") == 0 && push("range") == 1);
    CHECK(start("range") == 1);  // It is a new one each time: nothing has kept it.
    current = push;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(dlclose(library) == 0);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}
