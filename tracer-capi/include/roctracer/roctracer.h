/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Callbacks for calls of HIP, HSA and roctx, and records of calls and of what GPUs do. Source and binary
 * compatible with the header of the same name of roctracer 4.1, by whose specification the sections are
 * numbered. Functions of libroctracer64.so.4.
 *
 * Functions that return a roctracer_status_t return ROCTRACER_STATUS_SUCCESS, or an error, which
 * roctracer_error_string then describes. All of them can be called by any thread at any time, and, unless
 * something else is said, in callbacks. */

#ifndef ROCTRACER_H_
#define ROCTRACER_H_

#include <stddef.h>
#include <stdint.h>

#include "ext/prof_protocol.h"

#define ROCTRACER_CALL
#define ROCTRACER_EXPORT_DECORATOR __attribute__((visibility("default")))
#define ROCTRACER_IMPORT_DECORATOR
#define ROCTRACER_EXPORT ROCTRACER_EXPORT_DECORATOR ROCTRACER_CALL
#define ROCTRACER_IMPORT ROCTRACER_IMPORT_DECORATOR ROCTRACER_CALL
#define ROCTRACER_API ROCTRACER_IMPORT

/* Stands at functions that dlvsym finds by the version "ROCTRACER_4.1" (3.1). */
#define ROCTRACER_VERSION_4_1

/* Version of this interface (3.2). A library serves a client if its major version is the same and its minor
 * version is not lower. */
#define ROCTRACER_VERSION_MAJOR 4
#define ROCTRACER_VERSION_MINOR 1

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library that is loaded. */
ROCTRACER_API uint32_t roctracer_version_major(void) ROCTRACER_VERSION_4_1;
ROCTRACER_API uint32_t roctracer_version_minor(void) ROCTRACER_VERSION_4_1;

/* Status codes (3.3). */
typedef enum {
  ROCTRACER_STATUS_SUCCESS = 0,
  ROCTRACER_STATUS_ERROR = -1,                       /* what no other code says */
  ROCTRACER_STATUS_ERROR_INVALID_DOMAIN_ID = -2,     /* no such domain, or none that this is for */
  ROCTRACER_STATUS_ERROR_INVALID_ARGUMENT = -3,      /* no such operation or name, or a null pointer */
  ROCTRACER_STATUS_ERROR_DEFAULT_POOL_UNDEFINED = -4,
  ROCTRACER_STATUS_ERROR_DEFAULT_POOL_ALREADY_DEFINED = -5,
  ROCTRACER_STATUS_ERROR_MEMORY_ALLOCATION = -6,
  ROCTRACER_STATUS_ERROR_MISMATCHED_EXTERNAL_CORRELATION_ID = -7,
  ROCTRACER_STATUS_ERROR_NOT_IMPLEMENTED = -8,
  /* Deprecated: returned by no function. */
  ROCTRACER_STATUS_UNINIT = 2,
  ROCTRACER_STATUS_BREAK = 3,
  ROCTRACER_STATUS_BAD_DOMAIN = ROCTRACER_STATUS_ERROR_INVALID_DOMAIN_ID,
  ROCTRACER_STATUS_BAD_PARAMETER = ROCTRACER_STATUS_ERROR_INVALID_ARGUMENT,
  ROCTRACER_STATUS_HIP_API_ERR = 6,
  ROCTRACER_STATUS_HIP_OPS_ERR = 7,
  ROCTRACER_STATUS_HCC_OPS_ERR = ROCTRACER_STATUS_HIP_OPS_ERR,
  ROCTRACER_STATUS_HSA_ERR = 7,
  ROCTRACER_STATUS_ROCTX_ERR = 8
} roctracer_status_t;

/* Describes the last error of the calling thread; empty if there was none. It stays the last one. The caller
 * gives the string back to free. */
ROCTRACER_API const char* roctracer_error_string(void) ROCTRACER_VERSION_4_1;

/* Domains (3.4). */
typedef activity_domain_t roctracer_domain_t;

/* Name of operation `op` of a domain, in ACTIVITY_DOMAIN_HIP_OPS of the kind `kind` of command; NULL if there is
 * no such. The string is the library's. */
ROCTRACER_API const char* roctracer_op_string(uint32_t domain, uint32_t op,
                                              uint32_t kind) ROCTRACER_VERSION_4_1;

/* Operation of the name `str`, in ACTIVITY_DOMAIN_HSA_API and ACTIVITY_DOMAIN_HIP_API. `kind`, which may be NULL,
 * is set to 0. On an error nothing is set. */
ROCTRACER_API roctracer_status_t roctracer_op_code(uint32_t domain, const char* str, uint32_t* op,
                                                   uint32_t* kind) ROCTRACER_VERSION_4_1;

/* Sets properties of a domain: of ACTIVITY_DOMAIN_EXT_API a roctracer_ext_properties_t (roctracer_ext.h). Other
 * domains have none. */
ROCTRACER_API roctracer_status_t roctracer_set_properties(roctracer_domain_t domain,
                                                          void* properties) ROCTRACER_VERSION_4_1;

/* Callbacks (3.5): called by the thread that makes the call, before it and after it; of marks and ranges once, before.
 * An operation has one: the last that was enabled. Work of GPUs (…_OPS) has none; enabling one succeeds and does
 * nothing. So does enabling one of HIP or roctx before that library is loaded: it is called from when something of
 * the domain is enabled again. A callback may throw, and must not be left by longjmp. Calls that it makes
 * call none, of no domain. */
typedef activity_rtapi_callback_t roctracer_rtapi_callback_t;

ROCTRACER_API roctracer_status_t roctracer_enable_op_callback(activity_domain_t domain, uint32_t op,
                                                              activity_rtapi_callback_t callback,
                                                              void* arg) ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_enable_domain_callback(
    activity_domain_t domain, activity_rtapi_callback_t callback, void* arg) ROCTRACER_VERSION_4_1;

/* When this returns, a thread may still be in the callback. */
ROCTRACER_API roctracer_status_t roctracer_disable_op_callback(activity_domain_t domain,
                                                               uint32_t op) ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_disable_domain_callback(activity_domain_t domain)
    ROCTRACER_VERSION_4_1;

/* Activities (3.6): records of calls and of what GPUs do are written into pools, and delivered from there.
 *
 * What a GPU does is recorded when it is done, in the pool that was enabled when it was enqueued: each packet and each
 * asynchronous copy once, with the GPU's times in ns of CLOCK_BOOTTIME, 0 where they are not known. In HIP_OPS, which
 * records where HIP is loaded, a kernel by which HIP copies or fills is a copy; in HSA_OPS it is a kernel. device_id is
 * the number of the GPU in the runtime's order, queue_id that of the HSA queue, kernel_name the symbol. A barrier is
 * recorded if it has a signal. correlation_id is that of the innermost call that is traced, 0 if there is none. */
typedef activity_record_t roctracer_record_t;

/* The record behind `record` in a buffer. */
ROCTRACER_API roctracer_status_t roctracer_next_record(const activity_record_t* record,
                                                       const activity_record_t** next)
    ROCTRACER_VERSION_4_1;

/* Allocates `size` bytes where *ptr is NULL, and sets *ptr; gives *ptr back where `size` is 0. What it throws passes
 * through the function that opens the pool. */
typedef void (*roctracer_allocator_t)(char** ptr, size_t size, void* arg);

/* Takes the records from `begin` to before `end`, on the pool's thread. They, and what they point at, are there
 * until it returns. */
typedef void (*roctracer_buffer_callback_t)(const char* begin, const char* end, void* arg);

typedef struct {
  uint32_t mode;      /* means nothing */
  size_t buffer_size; /* bytes of each of the two buffers of a pool; of two records at least */
  roctracer_allocator_t alloc_fun; /* NULL: malloc and free */
  void* alloc_arg;
  roctracer_buffer_callback_t buffer_callback_fun; /* NULL: nothing is delivered */
  void* buffer_callback_arg;
} roctracer_properties_t;

typedef void roctracer_pool_t;

/* Makes a pool, or, where `pool` is NULL, the default pool. A thread whose record has no room waits until the
 * callback has returned from the other buffer: nothing is dropped. When the process exits, what was written into a
 * pool that is open is delivered, after the destructors of what was made since the first pool. */
ROCTRACER_API roctracer_status_t roctracer_open_pool_expl(const roctracer_properties_t* properties,
                                                          roctracer_pool_t** pool)
    ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_open_pool(const roctracer_properties_t* properties)
    ROCTRACER_VERSION_4_1;

/* Disables what is recorded in a pool, delivers what was written and, as a flush does, what GPUs were given, and closes
 * it; NULL: the default pool, if there is one. What GPUs have not done by then is lost. When it has returned the
 * callback is not called any more. In the pool's own callback it returns at once, and the rest is done when that has
 * returned. Closing a pool again does nothing. */
ROCTRACER_API roctracer_status_t roctracer_close_pool_expl(roctracer_pool_t* pool)
    ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_close_pool(void) ROCTRACER_VERSION_4_1;

/* Makes `pool` the default pool, unless it is NULL. Returns the one before, or NULL. */
ROCTRACER_API roctracer_pool_t* roctracer_default_pool_expl(roctracer_pool_t* pool)
    ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_pool_t* roctracer_default_pool(void) ROCTRACER_VERSION_4_1;

/* Has an operation recorded in a pool; NULL: the default pool. An operation is recorded in one: the last that was
 * enabled. Events and marks (…_EVT, ROCTX) have no records; enabling them succeeds and does nothing. */
ROCTRACER_API roctracer_status_t roctracer_enable_op_activity_expl(activity_domain_t domain,
                                                                   uint32_t op,
                                                                   roctracer_pool_t* pool)
    ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_enable_op_activity(activity_domain_t domain,
                                                              uint32_t op) ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_enable_domain_activity_expl(activity_domain_t domain,
                                                                       roctracer_pool_t* pool)
    ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_enable_domain_activity(activity_domain_t domain)
    ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_disable_op_activity(activity_domain_t domain,
                                                               uint32_t op) ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_disable_domain_activity(activity_domain_t domain)
    ROCTRACER_VERSION_4_1;

/* Delivers what was written into a pool, NULL: the default pool, if there is one; and returns when it was. What GPUs were
 * given before is waited for, up to a second in all, or as many ms as ROCTRACER_DRAIN_MS says in the environment: what
 * takes longer is delivered later. In a pool's callback it returns at once. */
ROCTRACER_API roctracer_status_t roctracer_flush_activity_expl(roctracer_pool_t* pool)
    ROCTRACER_VERSION_4_1;
ROCTRACER_API roctracer_status_t roctracer_flush_activity(void) ROCTRACER_VERSION_4_1;

/* The time by which records are told (3.7). */
ROCTRACER_API roctracer_status_t roctracer_get_timestamp(roctracer_timestamp_t* timestamp)
    ROCTRACER_VERSION_4_1;

#ifdef __cplusplus
}
#endif

#endif /* ROCTRACER_H_ */
