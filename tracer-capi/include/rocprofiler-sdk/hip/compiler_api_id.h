/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of HIP that the compiler calls, by number. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5.
 * All numbers are here, whatever release of HIP is installed. */

#ifndef ROCPROFILER_SDK_HIP_COMPILER_API_ID_H_
#define ROCPROFILER_SDK_HIP_COMPILER_API_ID_H_

typedef enum {
  ROCPROFILER_HIP_COMPILER_API_ID_NONE = -1,
  ROCPROFILER_HIP_COMPILER_API_ID___hipPopCallConfiguration = 0,
  ROCPROFILER_HIP_COMPILER_API_ID___hipPushCallConfiguration,
  ROCPROFILER_HIP_COMPILER_API_ID___hipRegisterFatBinary,
  ROCPROFILER_HIP_COMPILER_API_ID___hipRegisterFunction,
  ROCPROFILER_HIP_COMPILER_API_ID___hipRegisterManagedVar,
  ROCPROFILER_HIP_COMPILER_API_ID___hipRegisterSurface,
  ROCPROFILER_HIP_COMPILER_API_ID___hipRegisterTexture,
  ROCPROFILER_HIP_COMPILER_API_ID___hipRegisterVar,
  ROCPROFILER_HIP_COMPILER_API_ID___hipUnregisterFatBinary,
  ROCPROFILER_HIP_COMPILER_API_ID_LAST,
} rocprofiler_hip_compiler_api_id_t;

#endif /* ROCPROFILER_SDK_HIP_COMPILER_API_ID_H_ */
