/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tables of functions of RCCL, by number. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_RCCL_TABLE_ID_H_
#define ROCPROFILER_SDK_RCCL_TABLE_ID_H_

typedef enum {
  ROCPROFILER_RCCL_TABLE_ID_NONE = -1,
  ROCPROFILER_RCCL_TABLE_ID = 0,
  ROCPROFILER_RCCL_TABLE_ID_LAST,
} rocprofiler_rccl_table_id_t;

#endif /* ROCPROFILER_SDK_RCCL_TABLE_ID_H_ */
