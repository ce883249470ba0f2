/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of roctx, by number. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_MARKER_API_ID_H_
#define ROCPROFILER_SDK_MARKER_API_ID_H_

typedef enum {
  ROCPROFILER_MARKER_CORE_API_ID_NONE = -1,
  ROCPROFILER_MARKER_CORE_API_ID_roctxMarkA = 0,
  ROCPROFILER_MARKER_CORE_API_ID_roctxRangePushA,
  ROCPROFILER_MARKER_CORE_API_ID_roctxRangePop,
  ROCPROFILER_MARKER_CORE_API_ID_roctxRangeStartA,
  ROCPROFILER_MARKER_CORE_API_ID_roctxRangeStop,
  ROCPROFILER_MARKER_CORE_API_ID_roctxGetThreadId,
  ROCPROFILER_MARKER_CORE_API_ID_LAST,
} rocprofiler_marker_core_api_id_t;

typedef enum {
  ROCPROFILER_MARKER_CONTROL_API_ID_NONE = -1,
  ROCPROFILER_MARKER_CONTROL_API_ID_roctxProfilerPause = 0,
  ROCPROFILER_MARKER_CONTROL_API_ID_roctxProfilerResume,
  ROCPROFILER_MARKER_CONTROL_API_ID_LAST,
} rocprofiler_marker_control_api_id_t;

typedef enum {
  ROCPROFILER_MARKER_NAME_API_ID_NONE = -1,
  ROCPROFILER_MARKER_NAME_API_ID_roctxNameOsThread = 0,
  ROCPROFILER_MARKER_NAME_API_ID_roctxNameHsaAgent,
  ROCPROFILER_MARKER_NAME_API_ID_roctxNameHipDevice,
  ROCPROFILER_MARKER_NAME_API_ID_roctxNameHipStream,
  ROCPROFILER_MARKER_NAME_API_ID_LAST,
} rocprofiler_marker_name_api_id_t;

#if ROCPROFILER_SDK_INTERFACE >= 1
/* Marks, and ranges from their begin to their end. */
typedef enum rocprofiler_marker_core_range_api_id_t {
  ROCPROFILER_MARKER_CORE_RANGE_API_ID_NONE = -1,
  ROCPROFILER_MARKER_CORE_RANGE_API_ID_roctxMarkA = 0,
  ROCPROFILER_MARKER_CORE_RANGE_API_ID_roctxThreadRangeA,
  ROCPROFILER_MARKER_CORE_RANGE_API_ID_roctxProcessRangeA,
  ROCPROFILER_MARKER_CORE_RANGE_API_ID_roctxGetThreadId,
  ROCPROFILER_MARKER_CORE_RANGE_API_ID_LAST,
} rocprofiler_marker_core_range_api_id_t;
#endif

#endif /* ROCPROFILER_SDK_MARKER_API_ID_H_ */
