/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a tracer is told of marks and ranges. Source and binary compatible with the header of the same
 * name of roctracer 4.1. */

#ifndef ROCTRACER_ROCTX_H_
#define ROCTRACER_ROCTX_H_ 1

#include "ext/prof_protocol.h"
#include "roctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operations of ACTIVITY_DOMAIN_ROCTX. In C clients write `enum roctx_api_id_t`, too. */
typedef enum roctx_api_id_t {
  ROCTX_API_ID_roctxMarkA = 0,
  ROCTX_API_ID_roctxRangePushA = 1,
  ROCTX_API_ID_roctxRangePop = 2,
  ROCTX_API_ID_roctxRangeStartA = 3,
  ROCTX_API_ID_roctxRangeStop = 4,
  ROCTX_API_ID_NUMBER = 5
} roctx_api_id_t;

/* Arguments of an operation. Strings are the caller's, and valid during the callback. What an operation
 * does not have is 0. */
typedef struct roctx_api_data_s {
  union {
    __extension__ struct {
      const char* message;
      roctx_range_id_t id;
    };
    struct {
      const char* message;
    } roctxMarkA;
    struct {
      const char* message;
    } roctxRangePushA;
    struct {
      const char* message;
    } roctxRangePop;
    struct {
      const char* message;
      roctx_range_id_t id;
    } roctxRangeStartA;
    struct {
      const char* message;
      roctx_range_id_t id;
    } roctxRangeStop;
  } args;
} roctx_api_data_t;

/* For tracers: `callback` is called on the calling thread, with ACTIVITY_DOMAIN_ROCTX, a roctx_api_id_t and
 * a roctx_api_data_t*, by each function before it does what it does. What it returns is ignored. One at a
 * time; NULL for none. When this returns, a thread may still be in the callback of before. */
ROCTX_API void roctxRegisterTracerCallback(int (*callback)(activity_domain_t domain,
                                                           uint32_t operation_id,
                                                           void* data)) ROCTX_VERSION_4_1;

#ifdef __cplusplus
}
#endif

#endif /* ROCTRACER_ROCTX_H_ */
