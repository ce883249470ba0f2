/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Source compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_ROCTX_VERSION_H_
#define ROCPROFILER_SDK_ROCTX_VERSION_H_

/* Tells this roctx from that of roctracer. */
#define ROCTX_IS_ROCPROFILER_SDK 1

#define ROCTX_VERSION_MAJOR 0
#define ROCTX_VERSION_MINOR 5
#define ROCTX_VERSION_PATCH 0
#define ROCTX_VERSION_STRING "0.5.0"
#define ROCTX_SOVERSION (10000 * ROCTX_VERSION_MAJOR)
#define ROCTX_VERSION ((10000 * ROCTX_VERSION_MAJOR) + (100 * ROCTX_VERSION_MINOR) + ROCTX_VERSION_PATCH)

#endif /* ROCPROFILER_SDK_ROCTX_VERSION_H_ */
