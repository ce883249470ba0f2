/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of HIP. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_HIP_H_
#define ROCPROFILER_SDK_HIP_H_

#include <rocprofiler-sdk/hip/api_args.h>
#include <rocprofiler-sdk/hip/api_id.h>
#include <rocprofiler-sdk/hip/table_id.h>

#endif /* ROCPROFILER_SDK_HIP_H_ */
