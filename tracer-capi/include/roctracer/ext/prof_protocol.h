/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What roctracer, roctx and the runtimes that they trace tell each other: domains, phases, callbacks and
 * activity records. Binary compatible with the header of the same name of roctracer 4.1. */

#ifndef EXT_PROF_PROTOCOL_H_
#define EXT_PROF_PROTOCOL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a call or an activity comes from. */
typedef enum {
  ACTIVITY_DOMAIN_HSA_API = 0, /* calls of the HSA API */
  ACTIVITY_DOMAIN_HSA_OPS = 1, /* work of the GPU for callers of HSA */
  ACTIVITY_DOMAIN_HIP_OPS = 2, /* work of the GPU for callers of HIP */
  ACTIVITY_DOMAIN_HCC_OPS = ACTIVITY_DOMAIN_HIP_OPS,
  ACTIVITY_DOMAIN_HIP_VDI = ACTIVITY_DOMAIN_HIP_OPS,
  ACTIVITY_DOMAIN_HIP_API = 3, /* calls of the HIP API */
  ACTIVITY_DOMAIN_KFD_API = 4, /* unused */
  ACTIVITY_DOMAIN_EXT_API = 5, /* roctracer's own: external correlation ids */
  ACTIVITY_DOMAIN_ROCTX = 6,   /* marks and ranges */
  ACTIVITY_DOMAIN_HSA_EVT = 7, /* events of the HSA runtime */
  ACTIVITY_DOMAIN_NUMBER = 8
} activity_domain_t;

/* `op` of records of ACTIVITY_DOMAIN_EXT_API. */
typedef enum {
  ACTIVITY_EXT_OP_MARK = 0,
  ACTIVITY_EXT_OP_EXTERN_ID = 1 /* the record's external_id belongs to its correlation_id */
} activity_ext_op_t;

/* When a callback is called. */
typedef enum {
  ACTIVITY_API_PHASE_ENTER = 0,
  ACTIVITY_API_PHASE_EXIT = 1
} activity_api_phase_t;

typedef uint32_t activity_kind_t;
typedef uint32_t activity_op_t;
typedef uint64_t activity_correlation_id_t;

/* Nanoseconds of CLOCK_BOOTTIME. */
typedef uint64_t roctracer_timestamp_t;

/* Called for an operation that callbacks are enabled for; what `data` points at depends on the domain. */
typedef void (*activity_rtapi_callback_t)(uint32_t domain, uint32_t cid, const void* data, void* arg);

/* One activity. */
typedef struct activity_record_s {
  uint32_t domain;      /* activity_domain_t */
  activity_kind_t kind; /* ACTIVITY_DOMAIN_HIP_OPS: the kind of command */
  activity_op_t op;     /* the operation within its domain */
  __extension__ union {
    __extension__ struct {
      activity_correlation_id_t correlation_id; /* joins calls with the work that they started */
      roctracer_timestamp_t begin_ns;
      roctracer_timestamp_t end_ns;
    };
    struct {
      uint32_t se;
      uint64_t cycle;
      uint64_t pc;
    } pc_sample;
  };
  __extension__ union {
    __extension__ struct { /* work of the GPU */
      int device_id;
      uint64_t queue_id;
    };
    __extension__ struct { /* calls */
      uint32_t process_id;
      uint32_t thread_id;
    };
    __extension__ struct { /* ACTIVITY_EXT_OP_EXTERN_ID */
      activity_correlation_id_t external_id;
    };
  };
  __extension__ union {
    size_t bytes;             /* copies */
    const char* kernel_name;  /* dispatches */
    const char* mark_message; /* marks */
  };
} activity_record_t;

/* Of earlier versions; nothing takes them. */
typedef void (*activity_sync_callback_t)(uint32_t cid, activity_record_t* record, const void* data,
                                         void* arg);
typedef void (*activity_async_callback_t)(uint32_t op, void* record, void* arg);

#ifdef __cplusplus
}
#endif

#endif /* EXT_PROF_PROTOCOL_H_ */
