/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of HSA's extension that finalizes programs, by number. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5.
 * All numbers are here, whatever release of HSA is installed. */

#ifndef ROCPROFILER_SDK_HSA_FINALIZE_EXT_API_ID_H_
#define ROCPROFILER_SDK_HSA_FINALIZE_EXT_API_ID_H_

typedef enum {
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_NONE = -1,
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_hsa_ext_program_create = 0,
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_hsa_ext_program_destroy,
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_hsa_ext_program_add_module,
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_hsa_ext_program_iterate_modules,
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_hsa_ext_program_get_info,
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_hsa_ext_program_finalize,
  ROCPROFILER_HSA_FINALIZE_EXT_API_ID_LAST,
} rocprofiler_hsa_finalize_ext_api_id_t;

#endif /* ROCPROFILER_SDK_HSA_FINALIZE_EXT_API_ID_H_ */
