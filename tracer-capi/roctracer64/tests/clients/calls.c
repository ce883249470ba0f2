// A client in C99, linked against the library: each function, each status code that it can return, and what the
// thread's last error is then. Numbers are sections of the specification.

#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include <roctracer/roctracer_ext.h>
#include <roctracer/roctracer_plugin.h>
#include <roctracer/roctracer_roctx.h>

#include "check.h"

#define SUCCESS ROCTRACER_STATUS_SUCCESS
#define INVALID_DOMAIN ROCTRACER_STATUS_ERROR_INVALID_DOMAIN_ID
#define INVALID_ARGUMENT ROCTRACER_STATUS_ERROR_INVALID_ARGUMENT
#define NO_DEFAULT_POOL ROCTRACER_STATUS_ERROR_DEFAULT_POOL_UNDEFINED
#define NO_DOMAIN ((activity_domain_t)ACTIVITY_DOMAIN_NUMBER)

// Whether this is the thread's last error. 3.3.3.1: "The caller owns the returned string and should use free ()".
static bool last_error_is(const char* text) {
  char* last = (char*)roctracer_error_string();
  const bool is = last != NULL && strcmp(last, text) == 0;
  if (!is) fprintf(stderr, "the last error is: %s\n", last);
  free(last);
  return is;
}

static void nothing(uint32_t domain, uint32_t cid, const void* data, void* arg) {
  (void)domain, (void)cid, (void)data, (void)arg;
}

static void deliver(const char* begin, const char* end, void* arg) {
  (void)begin, (void)end;
  ++*(int*)arg;
}

// 3.2: "This function can be used even when the library is not initialized."
static void versions(void) {
  CHECK(roctracer_version_major() == ROCTRACER_VERSION_MAJOR);
  CHECK(roctracer_version_minor() == ROCTRACER_VERSION_MINOR);
}

static void* another_thread(void* argument) {
  (void)argument;
  CHECK(last_error_is(""));
  return NULL;
}

// 3.3.3.1: "describing the error of the last ROC Tracer API call by the calling thread that did not return success.
// The empty string is returned if there is no previous error. The last error is not cleared."
static void errors(void) {
  CHECK(last_error_is(""));
  CHECK(roctracer_disable_op_callback(ACTIVITY_DOMAIN_HIP_API, 100000) == INVALID_ARGUMENT);
  CHECK(last_error_is("roctracer_disable_op_callback(), invalid argument"));
  CHECK(roctracer_disable_op_callback(ACTIVITY_DOMAIN_HIP_API, 1) == SUCCESS);
  CHECK(last_error_is("roctracer_disable_op_callback(), invalid argument"));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, another_thread, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

// 3.4.3.2: "Returns the NUL terminated string for the operation name, or NULL if the domain or operation are
// invalid. The string is owned by the ROC Tracer library."
static void names(void) {
  const char* name = roctracer_op_string(ACTIVITY_DOMAIN_HIP_API, 107, 0);
  CHECK(name != NULL && strcmp(name, "hipLaunchKernel") == 0);
  CHECK(roctracer_op_string(ACTIVITY_DOMAIN_HIP_API, 107, 0) == name);
  CHECK(strcmp(roctracer_op_string(ACTIVITY_DOMAIN_HSA_API, 0, 0), "hsa_init") == 0);
  CHECK(strcmp(roctracer_op_string(ACTIVITY_DOMAIN_HSA_OPS, 1, 0), "COPY") == 0);
  CHECK(strcmp(roctracer_op_string(ACTIVITY_DOMAIN_HSA_EVT, 4, 0), "KSYMBOL") == 0);
  CHECK(strcmp(roctracer_op_string(ACTIVITY_DOMAIN_HIP_OPS, 0, 0x11F0), "KernelExecution") == 0);
  CHECK(strcmp(roctracer_op_string(ACTIVITY_DOMAIN_HIP_OPS, 77, 0x1207), "FillBuffer") == 0);
  CHECK(strcmp(roctracer_op_string(ACTIVITY_DOMAIN_EXT_API, 0, 0), "EXT_API") == 0);
  CHECK(roctracer_op_string(ACTIVITY_DOMAIN_HSA_OPS, 4, 0) == NULL);
  CHECK(last_error_is("roctracer_op_string(), invalid HSA OPS callback id"));
  CHECK(roctracer_op_string(ACTIVITY_DOMAIN_HSA_EVT, 6, 0) == NULL);
  CHECK(last_error_is("roctracer_op_string(), invalid HSA EVT callback id"));
  CHECK(roctracer_op_string(ACTIVITY_DOMAIN_HIP_API, 100000, 0) == NULL);
  CHECK(last_error_is("roctracer_op_string(), invalid argument"));
  CHECK(roctracer_op_string(ACTIVITY_DOMAIN_KFD_API, 0, 0) == NULL);
  CHECK(roctracer_op_string(NO_DOMAIN, 0, 0) == NULL);
  CHECK(last_error_is("roctracer_op_string(), invalid domain ID"));
}

// 3.4.3.1: "If not NULL then the operation kind code"; "The op is invalid for domain"; "The domain is invalid or not
// supported".
static void codes(void) {
  uint32_t op = 99, kind = 99;
  CHECK(roctracer_op_code(ACTIVITY_DOMAIN_HIP_API, "hipLaunchKernel", &op, &kind) == SUCCESS);
  CHECK(op == 107 && kind == 0);
  CHECK(roctracer_op_code(ACTIVITY_DOMAIN_HSA_API, "hsa_init", &op, NULL) == SUCCESS);
  CHECK(op == 0);
  op = kind = 99;
  CHECK(roctracer_op_code(ACTIVITY_DOMAIN_HIP_API, "hipNo", &op, &kind) == INVALID_ARGUMENT);
  CHECK(last_error_is("roctracer_op_code(), roctracer_op_code(), Invalid API name \"hipNo\", domain ID(3)"));
  CHECK(roctracer_op_code(ACTIVITY_DOMAIN_HIP_OPS, "COPY", &op, &kind) == INVALID_DOMAIN);
  CHECK(last_error_is("roctracer_op_code(), roctracer_op_code(), limited domain ID(2)"));
  CHECK(roctracer_op_code(ACTIVITY_DOMAIN_HIP_API, NULL, &op, &kind) == INVALID_ARGUMENT);
  CHECK(roctracer_op_code(ACTIVITY_DOMAIN_HIP_API, "hipMalloc", NULL, &kind) == INVALID_ARGUMENT);
  CHECK(op == 99 && kind == 99);
}

// All of them, there and back.
static void every_name(activity_domain_t domain, uint32_t end, int expected) {
  int named = 0;
  for (uint32_t op = 0; op < end; op++) {
    const char* name = roctracer_op_string(domain, op, 0);
    if (name == NULL) continue;
    uint32_t found = UINT32_MAX;
    CHECK(roctracer_op_code(domain, name, &found, NULL) == SUCCESS && found == op);
    named++;
  }
  CHECK(named == expected);
}

static int started, stopped;

static void count_start(void) { started++; }
static void count_stop(void) { stopped++; }

// 3.4.3.3, and roctracer_ext.h.
static void properties(void) {
  roctracer_ext_properties_t functions = {count_start, count_stop};
  CHECK(roctracer_set_properties(ACTIVITY_DOMAIN_EXT_API, &functions) == SUCCESS);
  roctracer_start();
  CHECK(started == 0);
  roctracer_stop();
  roctracer_stop();
  CHECK(stopped == 1);
  roctracer_start();
  roctracer_start();
  CHECK(started == 1);
  CHECK(roctracer_set_properties(ACTIVITY_DOMAIN_EXT_API, NULL) == INVALID_ARGUMENT);
  functions.start_cb = NULL, functions.stop_cb = NULL;
  CHECK(roctracer_set_properties(ACTIVITY_DOMAIN_EXT_API, &functions) == SUCCESS);
  roctracer_stop();
  roctracer_start();
  CHECK(started == 1 && stopped == 1);
  const activity_domain_t without[] = {ACTIVITY_DOMAIN_HSA_API, ACTIVITY_DOMAIN_HSA_OPS, ACTIVITY_DOMAIN_HSA_EVT,
                                       ACTIVITY_DOMAIN_HIP_API, ACTIVITY_DOMAIN_HIP_OPS};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    CHECK(roctracer_set_properties(without[i], NULL) == SUCCESS);
  CHECK(roctracer_set_properties(ACTIVITY_DOMAIN_ROCTX, &functions) == INVALID_DOMAIN);
  CHECK(last_error_is("roctracer_set_properties(), roctracer_set_properties(), invalid domain ID(6)"));
}

// How many operations each domain has; 0 of ACTIVITY_DOMAIN_KFD_API, which is none that can be traced.
static const struct {
  activity_domain_t domain;
  uint32_t end;
} DOMAINS[] = {
    {ACTIVITY_DOMAIN_HSA_API, 187}, {ACTIVITY_DOMAIN_HSA_OPS, 4}, {ACTIVITY_DOMAIN_HIP_OPS, 3},
    {ACTIVITY_DOMAIN_HIP_API, 334}, {ACTIVITY_DOMAIN_ROCTX, ROCTX_API_ID_NUMBER}, {ACTIVITY_DOMAIN_HSA_EVT, 6},
};
enum { KNOWN = sizeof DOMAINS / sizeof *DOMAINS };

// 3.5.3: "domain is invalid", "op is invalid for domain".
static void callbacks(void) {
  for (int i = 0; i < KNOWN; i++) {
    const activity_domain_t domain = DOMAINS[i].domain;
    const uint32_t last = DOMAINS[i].end - 1;
    CHECK(roctracer_enable_op_callback(domain, last, nothing, NULL) == SUCCESS);
    CHECK(roctracer_disable_op_callback(domain, last) == SUCCESS);
    CHECK(roctracer_enable_domain_callback(domain, nothing, NULL) == SUCCESS);
    CHECK(roctracer_disable_domain_callback(domain) == SUCCESS);
    CHECK(roctracer_enable_op_callback(domain, last + 1, nothing, NULL) == INVALID_ARGUMENT);
    CHECK(last_error_is("roctracer_enable_op_callback(), invalid argument"));
    CHECK(roctracer_disable_op_callback(domain, last + 1) == INVALID_ARGUMENT);
    CHECK(roctracer_enable_op_callback(domain, last, NULL, NULL) == INVALID_ARGUMENT);
    CHECK(roctracer_enable_domain_callback(domain, NULL, NULL) == INVALID_ARGUMENT);
    CHECK(last_error_is("roctracer_enable_domain_callback(), invalid argument"));
  }
  // It has no operations.
  CHECK(roctracer_enable_op_callback(ACTIVITY_DOMAIN_EXT_API, 0, nothing, NULL) == INVALID_ARGUMENT);
  CHECK(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_EXT_API, nothing, NULL) == SUCCESS);
  CHECK(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_EXT_API) == SUCCESS);
  const activity_domain_t invalid[] = {ACTIVITY_DOMAIN_KFD_API, NO_DOMAIN};
  for (int i = 0; i < 2; i++) {
    CHECK(roctracer_enable_op_callback(invalid[i], 0, nothing, NULL) == INVALID_DOMAIN);
    CHECK(last_error_is("roctracer_enable_op_callback(), invalid domain ID"));
    CHECK(roctracer_disable_op_callback(invalid[i], 0) == INVALID_DOMAIN);
    CHECK(roctracer_enable_domain_callback(invalid[i], nothing, NULL) == INVALID_DOMAIN);
    CHECK(roctracer_disable_domain_callback(invalid[i]) == INVALID_DOMAIN);
    CHECK(last_error_is("roctracer_disable_domain_callback(), invalid domain ID"));
  }
}

// 3.6: "pool is NULL and no default pool is defined".
static void activities(void) {
  CHECK(roctracer_enable_op_activity(ACTIVITY_DOMAIN_HIP_OPS, 0) == NO_DEFAULT_POOL);
  CHECK(last_error_is("roctracer_enable_op_activity(), roctracer_enable_activity_impl(), no default pool"));
  CHECK(roctracer_enable_op_activity_expl(ACTIVITY_DOMAIN_HIP_OPS, 0, NULL) == NO_DEFAULT_POOL);
  CHECK(roctracer_enable_domain_activity(ACTIVITY_DOMAIN_HIP_API) == NO_DEFAULT_POOL);
  CHECK(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HIP_API, NULL) == NO_DEFAULT_POOL);
  int delivered = 0;
  roctracer_properties_t properties = {0, 4096, NULL, NULL, deliver, &delivered};
  roctracer_pool_t* pool = NULL;
  CHECK(roctracer_open_pool_expl(&properties, &pool) == SUCCESS && pool != NULL);
  for (int i = 0; i < KNOWN; i++) {
    const activity_domain_t domain = DOMAINS[i].domain;
    const uint32_t last = DOMAINS[i].end - 1;
    CHECK(roctracer_enable_op_activity_expl(domain, last, pool) == SUCCESS);
    CHECK(roctracer_disable_op_activity(domain, last) == SUCCESS);
    CHECK(roctracer_enable_domain_activity_expl(domain, pool) == SUCCESS);
    CHECK(roctracer_disable_domain_activity(domain) == SUCCESS);
    CHECK(roctracer_enable_op_activity_expl(domain, last + 1, pool) == INVALID_ARGUMENT);
    CHECK(roctracer_disable_op_activity(domain, last + 1) == INVALID_ARGUMENT);
    CHECK(last_error_is("roctracer_disable_op_activity(), invalid argument"));
  }
  CHECK(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_EXT_API, pool) == SUCCESS);
  CHECK(roctracer_enable_op_activity_expl(ACTIVITY_DOMAIN_KFD_API, 0, pool) == INVALID_DOMAIN);
  CHECK(roctracer_enable_domain_activity_expl(NO_DOMAIN, pool) == INVALID_DOMAIN);
  CHECK(roctracer_disable_op_activity(ACTIVITY_DOMAIN_KFD_API, 0) == INVALID_DOMAIN);
  CHECK(roctracer_disable_domain_activity(NO_DOMAIN) == INVALID_DOMAIN);
  CHECK(last_error_is("roctracer_disable_domain_activity(), invalid domain ID"));
  CHECK(roctracer_flush_activity_expl(pool) == SUCCESS);
  CHECK(roctracer_close_pool_expl(pool) == SUCCESS);
  // AMD's library writes into it all the same.
  CHECK(roctracer_enable_op_activity_expl(ACTIVITY_DOMAIN_HIP_OPS, 0, pool) == ROCTRACER_STATUS_ERROR);
  CHECK(last_error_is("roctracer_enable_op_activity_expl(), the pool is closed"));
  CHECK(roctracer_flush_activity_expl(pool) == SUCCESS);
  CHECK(roctracer_close_pool_expl(pool) == SUCCESS);
  CHECK(delivered == 0);
}

// 3.6.3: the default pool.
static void default_pool(void) {
  CHECK(roctracer_default_pool() == NULL && roctracer_default_pool_expl(NULL) == NULL);
  // "or there is no default pool"
  CHECK(roctracer_close_pool() == SUCCESS && roctracer_close_pool_expl(NULL) == SUCCESS);
  CHECK(roctracer_flush_activity() == SUCCESS && roctracer_flush_activity_expl(NULL) == SUCCESS);
  roctracer_properties_t properties = {0};
  properties.buffer_size = 4096;
  CHECK(roctracer_open_pool(&properties) == SUCCESS);
  roctracer_pool_t* first = roctracer_default_pool();
  CHECK(first != NULL && roctracer_default_pool_expl(NULL) == first);
  // "The default pool is already defined. Unable to create the pool."
  CHECK(roctracer_open_pool(&properties) == ROCTRACER_STATUS_ERROR_DEFAULT_POOL_ALREADY_DEFINED);
  CHECK(last_error_is("roctracer_open_pool(), roctracer_open_pool_impl(), default pool already set"));
  CHECK(roctracer_open_pool_expl(&properties, NULL) == ROCTRACER_STATUS_ERROR_DEFAULT_POOL_ALREADY_DEFINED);
  CHECK(last_error_is("roctracer_open_pool_expl(), roctracer_open_pool_impl(), default pool already set"));
  // "Does not change the default memory pool."
  roctracer_pool_t* second = NULL;
  CHECK(roctracer_open_pool_expl(&properties, &second) == SUCCESS);
  CHECK(second != NULL && second != first && roctracer_default_pool() == first);
  CHECK(roctracer_enable_op_activity(ACTIVITY_DOMAIN_HIP_API, 1) == SUCCESS);
  CHECK(roctracer_enable_domain_activity(ACTIVITY_DOMAIN_HSA_API) == SUCCESS);
  // "Return the current default memory pool before any change"
  CHECK(roctracer_default_pool_expl(second) == first && roctracer_default_pool() == second);
  // "Close default tracer memory pool, if defined, and set to undefined."
  CHECK(roctracer_close_pool() == SUCCESS && roctracer_default_pool() == NULL);
  CHECK(roctracer_close_pool_expl(first) == SUCCESS);
  CHECK(roctracer_open_pool_expl(&properties, NULL) == SUCCESS && roctracer_default_pool() != NULL);
  CHECK(roctracer_close_pool_expl(roctracer_default_pool()) == SUCCESS && roctracer_default_pool() == NULL);
  CHECK(roctracer_open_pool(NULL) == INVALID_ARGUMENT);
  CHECK(roctracer_open_pool_expl(NULL, &second) == INVALID_ARGUMENT);
}

struct allocations {
  size_t size;
  int allocated, freed;
  void* memory;
  bool refuses;
};

static void allocate(char** ptr, size_t size, void* arg) {
  struct allocations* all = (struct allocations*)arg;
  if (all->refuses) return;
  if (size > 0) {
    CHECK(*ptr == NULL);
    all->size = size, all->allocated++;
    *ptr = (char*)(all->memory = malloc(size));
  } else {
    CHECK(*ptr == all->memory);
    all->freed++;
    free(*ptr);
    *ptr = NULL;
  }
}

// 3.6.2.1: "If ptr is NULL, then allocate memory of size bytes"; "If ptr is non-NULL and size is 0, then deallocate".
static void allocator(void) {
  struct allocations all = {0, 0, 0, NULL, false};
  roctracer_properties_t properties = {0, 4096, allocate, &all, NULL, NULL};
  roctracer_pool_t* pool = NULL;
  CHECK(roctracer_open_pool_expl(&properties, &pool) == SUCCESS);
  CHECK(all.allocated == 1 && all.size == 2 * 4096 && all.freed == 0);
  CHECK(roctracer_close_pool_expl(pool) == SUCCESS && all.freed == 1);
  CHECK(roctracer_close_pool_expl(pool) == SUCCESS && all.freed == 1);
  // "Unable to allocate memory for the pool. Unable to create the pool."
  all.refuses = true, pool = NULL;
  CHECK(roctracer_open_pool_expl(&properties, &pool) == ROCTRACER_STATUS_ERROR_MEMORY_ALLOCATION);
  CHECK(last_error_is("roctracer_open_pool_expl(), roctracer_open_pool_impl(), MemoryPool() error"));
  CHECK(pool == NULL);
  properties.buffer_size = SIZE_MAX;
  CHECK(roctracer_open_pool(&properties) == ROCTRACER_STATUS_ERROR_MEMORY_ALLOCATION);
  CHECK(roctracer_default_pool() == NULL);
}

// 3.6.3.13: "This function steps to the next activity record."
static void records(void) {
  const activity_record_t buffer[2] = {{0}};
  const activity_record_t* next = NULL;
  CHECK(roctracer_next_record(&buffer[0], &next) == SUCCESS && next == &buffer[1]);
  CHECK(roctracer_next_record(NULL, &next) == INVALID_ARGUMENT && next == &buffer[1]);
  CHECK(roctracer_next_record(&buffer[0], NULL) == INVALID_ARGUMENT);
}

// 3.7.2.1: "The system clock timestamp in nano seconds."
static void timestamps(void) {
  struct timespec before, after;
  roctracer_timestamp_t ns = 0;
  CHECK(clock_gettime(7 /* CLOCK_BOOTTIME */, &before) == 0);
  CHECK(roctracer_get_timestamp(&ns) == SUCCESS);
  CHECK(clock_gettime(7, &after) == 0);
  CHECK((uint64_t)before.tv_sec * 1000000000 + (uint64_t)before.tv_nsec <= ns);
  CHECK(ns <= (uint64_t)after.tv_sec * 1000000000 + (uint64_t)after.tv_nsec);
  CHECK(roctracer_get_timestamp(NULL) == INVALID_ARGUMENT);
}

static void* own_ids(void* argument) {
  (void)argument;
  uint64_t id = 99;
  CHECK(roctracer_activity_pop_external_correlation_id(&id) ==
        ROCTRACER_STATUS_ERROR_MISMATCHED_EXTERNAL_CORRELATION_ID);
  CHECK(id == 0);
  return NULL;
}

static void external_ids(void) {
  uint64_t id = 99;
  CHECK(roctracer_activity_push_external_correlation_id(7) == SUCCESS);
  CHECK(roctracer_activity_push_external_correlation_id(UINT64_MAX) == SUCCESS);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, own_ids, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(roctracer_activity_pop_external_correlation_id(&id) == SUCCESS && id == UINT64_MAX);
  CHECK(roctracer_activity_pop_external_correlation_id(NULL) == SUCCESS);
  CHECK(roctracer_activity_pop_external_correlation_id(&id) ==
        ROCTRACER_STATUS_ERROR_MISMATCHED_EXTERNAL_CORRELATION_ID);
  CHECK(id == 0);
  CHECK(last_error_is("roctracer_activity_pop_external_correlation_id(), "
                      "roctracer_activity_pop_external_correlation_id(), "
                      "unbalanced external correlation id pop"));
  CHECK(roctracer_activity_pop_external_correlation_id(NULL) ==
        ROCTRACER_STATUS_ERROR_MISMATCHED_EXTERNAL_CORRELATION_ID);
}

// Of 4.0, in no header.
int roctracer_load(void);
void roctracer_unload(void);
void roctracer_flush_buf(void);
void roctracer_mark(const char* message);
roctracer_status_t roctracer_enable_callback(activity_rtapi_callback_t callback, void* arg);
roctracer_status_t roctracer_disable_callback(void);
roctracer_status_t roctracer_enable_activity(void);
roctracer_status_t roctracer_enable_activity_expl(roctracer_pool_t* pool);
roctracer_status_t roctracer_disable_activity(void);
extern const uint32_t HSA_AMD_TOOL_PRIORITY;
bool OnLoad(void* table, uint64_t version, uint64_t failed, const char* const* names);
void OnUnload(void);

// They go through the domains, and fail at the one that cannot be traced, as AMD's do.
static void deprecated(void) {
  CHECK(roctracer_load() == 1);
  roctracer_unload();
  roctracer_flush_buf();
  roctracer_mark("mark");
  CHECK(roctracer_enable_callback(nothing, NULL) == INVALID_DOMAIN);
  CHECK(last_error_is("roctracer_enable_domain_callback(), invalid domain ID"));
  CHECK(roctracer_disable_callback() == INVALID_DOMAIN);
  CHECK(roctracer_enable_activity() == NO_DEFAULT_POOL);
  roctracer_properties_t properties = {0};
  CHECK(roctracer_open_pool(&properties) == SUCCESS);
  CHECK(roctracer_enable_activity() == INVALID_DOMAIN);
  CHECK(roctracer_enable_activity_expl(roctracer_default_pool()) == INVALID_DOMAIN);
  CHECK(roctracer_disable_activity() == INVALID_DOMAIN);
  CHECK(roctracer_close_pool() == SUCCESS);
  CHECK(HSA_AMD_TOOL_PRIORITY == 50);
  CHECK(OnLoad(NULL, 0, 0, NULL));
  OnUnload();
}

int main(void) {
  versions();
  errors();
  names();
  codes();
  every_name(ACTIVITY_DOMAIN_HIP_API, 400, 329);
  every_name(ACTIVITY_DOMAIN_HSA_API, 400, 186);
  properties();
  callbacks();
  activities();
  default_pool();
  allocator();
  records();
  timestamps();
  external_ids();
  deprecated();
  return 0;
}
