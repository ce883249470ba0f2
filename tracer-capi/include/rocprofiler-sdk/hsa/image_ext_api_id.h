/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Functions of HSA's extension for images, by number. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5.
 * All numbers are here, whatever release of HSA is installed. */

#ifndef ROCPROFILER_SDK_HSA_IMAGE_EXT_API_ID_H_
#define ROCPROFILER_SDK_HSA_IMAGE_EXT_API_ID_H_

typedef enum {
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_NONE = -1,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_get_capability = 0,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_data_get_info,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_create,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_import,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_export,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_copy,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_clear,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_destroy,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_sampler_create,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_sampler_destroy,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_get_capability_with_layout,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_data_get_info_with_layout,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_hsa_ext_image_create_with_layout,
  ROCPROFILER_HSA_IMAGE_EXT_API_ID_LAST,
} rocprofiler_hsa_image_ext_api_id_t;

#endif /* ROCPROFILER_SDK_HSA_IMAGE_EXT_API_ID_H_ */
