/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of HSA, by number. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_HSA_API_ID_H_
#define ROCPROFILER_SDK_HSA_API_ID_H_

#include <rocprofiler-sdk/hsa/amd_ext_api_id.h>
#include <rocprofiler-sdk/hsa/core_api_id.h>
#include <rocprofiler-sdk/hsa/finalize_ext_api_id.h>
#include <rocprofiler-sdk/hsa/image_ext_api_id.h>

#endif /* ROCPROFILER_SDK_HSA_API_ID_H_ */
