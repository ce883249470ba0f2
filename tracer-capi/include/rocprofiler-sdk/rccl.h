/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of RCCL. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. Calls of RCCL are
 * not recorded: services of its kinds are refused with NOT_IMPLEMENTED. */

#ifndef ROCPROFILER_SDK_RCCL_H_
#define ROCPROFILER_SDK_RCCL_H_

#include <rocprofiler-sdk/rccl/api_args.h>
#include <rocprofiler-sdk/rccl/api_id.h>
#include <rocprofiler-sdk/rccl/table_id.h>

#endif /* ROCPROFILER_SDK_RCCL_H_ */
