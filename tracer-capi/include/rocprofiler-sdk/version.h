/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The version of the interface. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_VERSION_H_
#define ROCPROFILER_SDK_VERSION_H_

#define ROCPROFILER_IS_ROCPROFILER_SDK 1

#define ROCPROFILER_VERSION_MAJOR 0
#define ROCPROFILER_VERSION_MINOR 5
#define ROCPROFILER_VERSION_PATCH 0
#define ROCPROFILER_SOVERSION (10000 * ROCPROFILER_VERSION_MAJOR)
#define ROCPROFILER_VERSION_STRING "0.5.0"

/* What rocprofiler_configure is told. */
#define ROCPROFILER_VERSION \
  ((10000 * ROCPROFILER_VERSION_MAJOR) + (100 * ROCPROFILER_VERSION_MINOR) + ROCPROFILER_VERSION_PATCH)

#endif /* ROCPROFILER_SDK_VERSION_H_ */
