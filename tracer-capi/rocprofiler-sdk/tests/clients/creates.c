// A tool that wraps pthread_create, and lets those threads alone that the libraries create. When it is finalized it prints,
// for each library: how many threads it was told of before, how many after, and how many it has seen created in between;
// and how many the runtimes have created of which it was not told.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

static struct threads {
  unsigned long before, after, seen;
} threads[ROCPROFILER_HIP_LIBRARY + 1];
static unsigned long untold;
// Whose thread the calling one is about to create.
static __thread rocprofiler_runtime_library_t library;

static void add_one(unsigned long* count) { __atomic_add_fetch(count, 1, __ATOMIC_RELAXED); }

static void before(rocprofiler_runtime_library_t whose, void* data) {
  CHECK(library == 0 && data == threads && whose <= ROCPROFILER_HIP_LIBRARY);
  library = whose;
  add_one(&threads[whose].before);
}

static void after(rocprofiler_runtime_library_t whose, void* data) {
  CHECK(library == whose && data == threads);
  library = 0;
  add_one(&threads[whose].after);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*), void* argument) {
  static int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, "pthread_create");
  Dl_info caller;
  if (library) {
    add_one(&threads[library].seen);
  } else if (dladdr(__builtin_return_address(0), &caller) &&
             (strstr(caller.dli_fname, "libhsa-runtime64") || strstr(caller.dli_fname, "libamdhip64"))) {
    add_one(&untold);
  }
  return next(thread, attributes, begin, argument);
}

static void take(rocprofiler_context_id_t context, rocprofiler_buffer_id_t buffer, rocprofiler_record_header_t** headers,
                 size_t count, void* data, uint64_t lost) {
  (void)context, (void)buffer, (void)headers, (void)count, (void)data, (void)lost;
}

static int initialize(rocprofiler_client_finalize_t finalize, void* data) {
  (void)finalize, (void)data;
  rocprofiler_context_id_t context = {0};
  rocprofiler_buffer_id_t buffer = {0};
  rocprofiler_callback_thread_t thread;
  DONE(rocprofiler_create_context(&context));
  DONE(rocprofiler_create_buffer(context, 65536, 32768, ROCPROFILER_BUFFER_POLICY_LOSSLESS, take, NULL, &buffer));
  DONE(rocprofiler_create_callback_thread(&thread));
  DONE(rocprofiler_assign_callback_thread(buffer, thread));
  DONE(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, NULL, 0, buffer));
  DONE(rocprofiler_start_context(context));
  return 0;
}

static void finalize(void* data) {
  (void)data;
  const int all[] = {ROCPROFILER_LIBRARY, ROCPROFILER_HSA_LIBRARY, ROCPROFILER_HIP_LIBRARY};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const struct threads* own = &threads[all[i]];
    printf("threads %d %lu %lu %lu\n", all[i], own->before, own->after, own->seen);
  }
  printf("untold %lu\n", untold);
  fflush(stdout);
}

rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t version, const char* text, uint32_t priority,
                                                           rocprofiler_client_id_t* id) {
  (void)version, (void)text, (void)priority;
  id->name = "creates";
  DONE(rocprofiler_at_internal_thread_create(before, after, 0, threads));
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, NULL};
  return &result;
}

__attribute__((constructor)) static void itself(void) { DONE(rocprofiler_force_configure(rocprofiler_configure)); }
