/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What belongs to ACTIVITY_DOMAIN_HIP_API and ACTIVITY_DOMAIN_HIP_OPS: operations and arguments of calls are those
 * of the installed HIP (hip_api_id_t, hip_api_data_t). Source and binary compatible with the header of the same
 * name of roctracer 4.1. */

#ifndef ROCTRACER_HIP_H_
#define ROCTRACER_HIP_H_

#include "roctracer.h"

#include <hip/hip_runtime.h>

#include <hip/amd_detail/hip_prof_str.h>

/* Operations of ACTIVITY_DOMAIN_HIP_OPS. */
typedef enum {
  HIP_OP_ID_DISPATCH = 0,
  HIP_OP_ID_COPY = 1,
  HIP_OP_ID_BARRIER = 2,
  HIP_OP_ID_NUMBER = 3
} hip_op_id_t;

#endif /* ROCTRACER_HIP_H_ */
