/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counters that a tool defines itself. Counters are not read: the function returns NOT_IMPLEMENTED. Source and binary
 * compatible with the header of the same name of ROCprofiler-SDK 1.0. */

#ifndef ROCPROFILER_SDK_EXPERIMENTAL_COUNTERS_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_COUNTERS_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

#if ROCPROFILER_SDK_INTERFACE >= 1

ROCPROFILER_EXTERN_C_INIT

/* Takes definitions, which are YAML. */
rocprofiler_status_t rocprofiler_load_counter_definition(const char* yaml, size_t size,
                                                         rocprofiler_counter_flag_t flags) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif

#endif /* ROCPROFILER_SDK_EXPERIMENTAL_COUNTERS_H_ */
