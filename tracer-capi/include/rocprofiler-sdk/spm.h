/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Streams of counters. Counters are not read: the function returns NOT_IMPLEMENTED. Source and binary compatible with the
 * header of the same name of ROCprofiler-SDK 0.5. That of 1.0 declares the function, too, but no library of 1.0 has it. */

#ifndef ROCPROFILER_SDK_SPM_H_
#define ROCPROFILER_SDK_SPM_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

#if ROCPROFILER_SDK_INTERFACE < 1
rocprofiler_status_t rocprofiler_configure_spm_service(rocprofiler_context_id_t context_id,
                                                       rocprofiler_buffer_id_t buffer_id,
                                                       rocprofiler_profile_config_id_t profile_config,
                                                       uint64_t interval) ROCPROFILER_API;
#endif

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_SPM_H_ */
