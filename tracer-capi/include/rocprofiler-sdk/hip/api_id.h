/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of HIP, by number. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_HIP_API_ID_H_
#define ROCPROFILER_SDK_HIP_API_ID_H_

#include <rocprofiler-sdk/hip/compiler_api_id.h>
#include <rocprofiler-sdk/hip/runtime_api_id.h>

#endif /* ROCPROFILER_SDK_HIP_API_ID_H_ */
