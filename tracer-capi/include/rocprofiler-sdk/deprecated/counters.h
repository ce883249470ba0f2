/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions that 1.0 is to lose: counters.h declares them. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 1.0. */

#ifndef ROCPROFILER_SDK_DEPRECATED_COUNTERS_H_
#define ROCPROFILER_SDK_DEPRECATED_COUNTERS_H_

#include <rocprofiler-sdk/counters.h>

#endif /* ROCPROFILER_SDK_DEPRECATED_COUNTERS_H_ */
