/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tables of functions of roctx, by number. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_MARKER_TABLE_ID_H_
#define ROCPROFILER_SDK_MARKER_TABLE_ID_H_

#include <rocprofiler-sdk/defines.h>

typedef enum {
  ROCPROFILER_MARKER_TABLE_ID_NONE = -1,
  ROCPROFILER_MARKER_TABLE_ID_RoctxCore = 0,
  ROCPROFILER_MARKER_TABLE_ID_RoctxControl,
  ROCPROFILER_MARKER_TABLE_ID_RoctxName,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_MARKER_TABLE_ID_RoctxCoreRange,
#endif
  ROCPROFILER_MARKER_TABLE_ID_LAST,
} rocprofiler_marker_table_id_t;

#endif /* ROCPROFILER_SDK_MARKER_TABLE_ID_H_ */
