// A client that loads the library, whose path is its argument, finds functions by name and version, unloads it and
// loads it again.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include <roctracer/roctracer.h>

#include "check.h"

// ISO C has no conversion from a pointer to one of a function.
#define FUNCTION(type, name, pointer) \
  type name;                          \
  *(void**)(&name) = (pointer)

// 3.1: "the address of each function can be obtained using dlvsym with the name of the function and its corresponding
// symbol version string", which is "ROCTRACER_4.1" for all of them.
static const char* const FUNCTIONS[] = {
    "roctracer_version_major", "roctracer_version_minor", "roctracer_error_string", "roctracer_op_string",
    "roctracer_op_code", "roctracer_set_properties", "roctracer_enable_op_callback",
    "roctracer_enable_domain_callback", "roctracer_disable_op_callback", "roctracer_disable_domain_callback",
    "roctracer_next_record", "roctracer_open_pool_expl", "roctracer_open_pool", "roctracer_close_pool_expl",
    "roctracer_close_pool", "roctracer_default_pool_expl", "roctracer_default_pool",
    "roctracer_enable_op_activity_expl", "roctracer_enable_op_activity", "roctracer_enable_domain_activity_expl",
    "roctracer_enable_domain_activity", "roctracer_disable_op_activity", "roctracer_disable_domain_activity",
    "roctracer_flush_activity_expl", "roctracer_flush_activity", "roctracer_get_timestamp", "roctracer_start",
    "roctracer_stop", "roctracer_activity_push_external_correlation_id",
    "roctracer_activity_pop_external_correlation_id"};

typedef uint32_t (*version_t)(void);
typedef roctracer_status_t (*open_t)(const roctracer_properties_t*, roctracer_pool_t**);
typedef roctracer_status_t (*close_t)(roctracer_pool_t*);
typedef const char* (*name_t)(uint32_t, uint32_t, uint32_t);

int main(int count, char** arguments) {
  CHECK(count == 2);
  for (int i = 0; i < 3; i++) {
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    for (size_t at = 0; at < sizeof FUNCTIONS / sizeof *FUNCTIONS; at++) {
      CHECK(dlvsym(library, FUNCTIONS[at], "ROCTRACER_4.1") != NULL);
      CHECK(dlsym(library, FUNCTIONS[at]) != NULL);
    }
    CHECK(dlvsym(library, "roctracer_version_major", "ROCTX_4.1") == NULL);
    CHECK(dlsym(library, "rust_eh_personality") == NULL);
    CHECK(dlsym(library, "roctracer_op_string_in_4_1") == NULL);
    // Both versions do the same, with arguments and result.
    FUNCTION(version_t, old_major, dlvsym(library, "roctracer_version_major", "ROCTRACER_4.0"));
    FUNCTION(version_t, new_major, dlvsym(library, "roctracer_version_major", "ROCTRACER_4.1"));
    CHECK(old_major != NULL && old_major() == 4 && new_major() == 4);
    FUNCTION(name_t, old_name, dlvsym(library, "roctracer_op_string", "ROCTRACER_4.0"));
    FUNCTION(name_t, new_name, dlvsym(library, "roctracer_op_string", "ROCTRACER_4.1"));
    const char* name = new_name(ACTIVITY_DOMAIN_HIP_OPS, 0, 0x11F0);
    CHECK(strcmp(name, "KernelExecution") == 0 && old_name(ACTIVITY_DOMAIN_HIP_OPS, 0, 0x11F0) == name);
    // A pool that nobody closes has its thread in the library.
    FUNCTION(open_t, open, dlvsym(library, "roctracer_open_pool_expl", "ROCTRACER_4.1"));
    FUNCTION(close_t, close, dlvsym(library, "roctracer_close_pool_expl", "ROCTRACER_4.0"));
    roctracer_properties_t properties = {0};
    properties.buffer_size = 1024;
    roctracer_pool_t *kept = NULL, *closed = NULL;
    CHECK(open(&properties, &kept) == ROCTRACER_STATUS_SUCCESS);
    CHECK(open(&properties, &closed) == ROCTRACER_STATUS_SUCCESS);
    CHECK(close(closed) == ROCTRACER_STATUS_SUCCESS);
    CHECK(dlclose(library) == 0);
  }
  return 0;
}
