/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of HSA. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_HSA_H_
#define ROCPROFILER_SDK_HSA_H_

#include <rocprofiler-sdk/hsa/api_args.h>
#include <rocprofiler-sdk/hsa/api_id.h>
#include <rocprofiler-sdk/hsa/scratch_memory_args.h>
#include <rocprofiler-sdk/hsa/table_id.h>

#endif /* ROCPROFILER_SDK_HSA_H_ */
