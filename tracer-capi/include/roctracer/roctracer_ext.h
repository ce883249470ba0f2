/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Starting and stopping, and ids by which a program names regions of its own. Source and binary compatible with the
 * header of the same name of roctracer 4.1. Functions of libroctracer64.so.4. */

#ifndef ROCTRACER_EXT_H_
#define ROCTRACER_EXT_H_

#include "roctracer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called by roctracer_start and roctracer_stop where they change something. */
typedef void (*roctracer_start_cb_t)(void);
typedef void (*roctracer_stop_cb_t)(void);

/* For roctracer_set_properties, with ACTIVITY_DOMAIN_EXT_API. NULL: nothing is called. */
typedef struct {
  roctracer_start_cb_t start_cb;
  roctracer_stop_cb_t stop_cb;
} roctracer_ext_properties_t;

/* While stopped, no callback is called and nothing recorded, but for callbacks of marks and ranges. It is not
 * stopped at first. */
ROCTRACER_API void roctracer_start(void) ROCTRACER_VERSION_4_1;
ROCTRACER_API void roctracer_stop(void) ROCTRACER_VERSION_4_1;

/* Begins a region of the calling thread, inside of those that it has begun before. Right before each record of a
 * call that the thread makes meanwhile comes one of ACTIVITY_EXT_OP_EXTERN_ID with the innermost id and the
 * call's correlation id. */
ROCTRACER_API roctracer_status_t roctracer_activity_push_external_correlation_id(
    activity_correlation_id_t id) ROCTRACER_VERSION_4_1;

/* Ends the innermost region of the calling thread. Its id is written to `last_id`, which may be NULL; 0 if there is
 * none, which is ROCTRACER_STATUS_ERROR_MISMATCHED_EXTERNAL_CORRELATION_ID. */
ROCTRACER_API roctracer_status_t roctracer_activity_pop_external_correlation_id(
    activity_correlation_id_t* last_id) ROCTRACER_VERSION_4_1;

#ifdef __cplusplus
}
#endif

#endif /* ROCTRACER_EXT_H_ */
