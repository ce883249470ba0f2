/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What counters agents have. Counters are not read: each function returns NOT_IMPLEMENTED, and calls no callback. Source and
 * binary compatible with the header of the same name of ROCprofiler-SDK 0.5, and with that of 1.0. */

#ifndef ROCPROFILER_SDK_COUNTERS_H_
#define ROCPROFILER_SDK_COUNTERS_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

#if ROCPROFILER_SDK_INTERFACE >= 1
/* What ROCPROFILER_COUNTER_INFO_VERSION_1 stands for; sizes are those of the structures. */
typedef struct rocprofiler_counter_dimension_info_t {
  uint64_t size;
  const char* dimension_name;
  size_t index;
} rocprofiler_counter_dimension_info_t;

typedef struct rocprofiler_counter_record_dimension_instance_info_t {
  uint64_t size;
  rocprofiler_counter_instance_id_t instance_id;
  uint64_t counter_id;
  uint64_t dimensions_count;
  const rocprofiler_counter_dimension_info_t** dimensions;
} rocprofiler_counter_record_dimension_instance_info_t;

#if defined(__GNUC__)
__extension__
#endif
typedef struct rocprofiler_counter_info_v1_t {
  uint64_t size;
  rocprofiler_counter_id_t id;
  const char* name;
  const char* description;
  const char* block;
  const char* expression;
  uint8_t is_constant : 1;
  uint8_t is_derived : 1;
  uint64_t dimensions_count;
  const rocprofiler_counter_record_dimension_info_t** dimensions;
  uint64_t dimensions_instances_count;
  const rocprofiler_counter_record_dimension_instance_info_t** dimensions_instances;
} rocprofiler_counter_info_v1_t;
#endif

/* The counter of a value, and where in a dimension that was read. */
rocprofiler_status_t rocprofiler_query_record_counter_id(rocprofiler_counter_instance_id_t id,
                                                         rocprofiler_counter_id_t* counter_id) ROCPROFILER_API
    ROCPROFILER_NONNULL(2);
rocprofiler_status_t rocprofiler_query_record_dimension_position(rocprofiler_counter_instance_id_t id,
                                                                 rocprofiler_counter_dimension_id_t dim,
                                                                 size_t* pos) ROCPROFILER_API ROCPROFILER_NONNULL(3);

/* The dimensions of a counter. */
typedef rocprofiler_status_t (*rocprofiler_available_dimensions_cb_t)(
    rocprofiler_counter_id_t id, const rocprofiler_record_dimension_info_t* dim_info, size_t num_dims, void* user_data);
rocprofiler_status_t rocprofiler_iterate_counter_dimensions(rocprofiler_counter_id_t id,
                                                            rocprofiler_available_dimensions_cb_t info_cb,
                                                            void* user_data) ROCPROFILER_API;

/* Name and description of a counter: a structure of the version. */
rocprofiler_status_t rocprofiler_query_counter_info(rocprofiler_counter_id_t counter_id,
                                                    rocprofiler_counter_info_version_id_t version,
                                                    void* info) ROCPROFILER_API ROCPROFILER_NONNULL(3);

/* How many values a counter has on an agent. */
rocprofiler_status_t rocprofiler_query_counter_instance_count(rocprofiler_agent_id_t agent_id,
                                                              rocprofiler_counter_id_t counter_id,
                                                              size_t* instance_count) ROCPROFILER_API
    ROCPROFILER_NONNULL(3);

/* The counters of an agent. */
typedef rocprofiler_status_t (*rocprofiler_available_counters_cb_t)(rocprofiler_agent_id_t agent_id,
                                                                    rocprofiler_counter_id_t* counters,
                                                                    size_t num_counters, void* user_data);
rocprofiler_status_t rocprofiler_iterate_agent_supported_counters(rocprofiler_agent_id_t agent_id,
                                                                  rocprofiler_available_counters_cb_t cb,
                                                                  void* user_data) ROCPROFILER_API
    ROCPROFILER_NONNULL(2);

#if ROCPROFILER_SDK_INTERFACE >= 1
/* Makes a counter of an expression over others. */
rocprofiler_status_t rocprofiler_create_counter(const char* name, size_t name_len, const char* expr, size_t expr_len,
                                                const char* description, size_t description_len,
                                                rocprofiler_agent_id_t agent,
                                                rocprofiler_counter_id_t* counter_id) ROCPROFILER_API
    ROCPROFILER_NONNULL(1, 3, 8);
#endif

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_COUNTERS_H_ */
