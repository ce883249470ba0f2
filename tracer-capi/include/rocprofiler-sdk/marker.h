/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of roctx. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_MARKER_H_
#define ROCPROFILER_SDK_MARKER_H_

#include <rocprofiler-sdk/marker/api_args.h>
#include <rocprofiler-sdk/marker/api_id.h>
#include <rocprofiler-sdk/marker/table_id.h>

#endif /* ROCPROFILER_SDK_MARKER_H_ */
