/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tables of functions of HSA, by number. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_HSA_TABLE_ID_H_
#define ROCPROFILER_SDK_HSA_TABLE_ID_H_

typedef enum {
  ROCPROFILER_HSA_TABLE_ID_NONE = -1,
  ROCPROFILER_HSA_TABLE_ID_Core = 0,
  ROCPROFILER_HSA_TABLE_ID_AmdExt,
  ROCPROFILER_HSA_TABLE_ID_ImageExt,
  ROCPROFILER_HSA_TABLE_ID_FinalizeExt,
  ROCPROFILER_HSA_TABLE_ID_AmdTool,
  ROCPROFILER_HSA_TABLE_ID_PcSamplingExt,
  ROCPROFILER_HSA_TABLE_ID_LAST,
} rocprofiler_hsa_table_id_t;

#endif /* ROCPROFILER_SDK_HSA_TABLE_ID_H_ */
