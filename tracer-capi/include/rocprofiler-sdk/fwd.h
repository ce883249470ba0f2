/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Numbers and structures that all functions share. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5, and with that of 1.0 (see defines.h). */

#ifndef ROCPROFILER_SDK_FWD_H_
#define ROCPROFILER_SDK_FWD_H_

#include <rocprofiler-sdk/defines.h>

ROCPROFILER_EXTERN_C_INIT

/* What a function returns. */
typedef enum {
  ROCPROFILER_STATUS_SUCCESS = 0,
  ROCPROFILER_STATUS_ERROR,
  ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_BUFFER_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_KIND_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_OPERATION_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_THREAD_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR,
  ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID,
  ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED,
  ROCPROFILER_STATUS_ERROR_CONTEXT_CONFLICT,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_STATUS_ERROR_CONTEXT_ID_NOT_ZERO,
#endif
  ROCPROFILER_STATUS_ERROR_BUFFER_BUSY,
  ROCPROFILER_STATUS_ERROR_SERVICE_ALREADY_CONFIGURED,
  ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED,
  ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED,
  ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI,
  ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT,
  ROCPROFILER_STATUS_ERROR_METRIC_NOT_VALID_FOR_AGENT,
  ROCPROFILER_STATUS_ERROR_FINALIZED,
  ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED,
  ROCPROFILER_STATUS_ERROR_DIM_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_PROFILE_COUNTER_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_AST_GENERATION_FAILED,
  ROCPROFILER_STATUS_ERROR_AST_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_AQL_NO_EVENT_COORD,
  ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_KERNEL,
  ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES,
  ROCPROFILER_STATUS_ERROR_PROFILE_NOT_FOUND,
  ROCPROFILER_STATUS_ERROR_AGENT_DISPATCH_CONFLICT,
  ROCPROFILER_STATUS_INTERNAL_NO_AGENT_CONTEXT,
  ROCPROFILER_STATUS_ERROR_SAMPLE_RATE_EXCEEDED,
  ROCPROFILER_STATUS_ERROR_NO_PROFILE_QUEUE,
  ROCPROFILER_STATUS_ERROR_NO_HARDWARE_COUNTERS,
  ROCPROFILER_STATUS_ERROR_AGENT_MISMATCH,
  ROCPROFILER_STATUS_ERROR_NOT_AVAILABLE,
  ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT,
  ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED,
#endif
  ROCPROFILER_STATUS_LAST,
} rocprofiler_status_t;

/* What a record in a buffer comes from. */
typedef enum {
  ROCPROFILER_BUFFER_CATEGORY_NONE = 0,
  ROCPROFILER_BUFFER_CATEGORY_TRACING,
  ROCPROFILER_BUFFER_CATEGORY_PC_SAMPLING,
  ROCPROFILER_BUFFER_CATEGORY_COUNTERS,
  ROCPROFILER_BUFFER_CATEGORY_LAST,
} rocprofiler_buffer_category_t;

typedef enum {
  ROCPROFILER_AGENT_TYPE_NONE = 0,
  ROCPROFILER_AGENT_TYPE_CPU,
  ROCPROFILER_AGENT_TYPE_GPU,
  ROCPROFILER_AGENT_TYPE_LAST,
} rocprofiler_agent_type_t;

typedef enum {
  ROCPROFILER_CALLBACK_PHASE_NONE = 0,
  ROCPROFILER_CALLBACK_PHASE_ENTER,
  ROCPROFILER_CALLBACK_PHASE_LOAD = ROCPROFILER_CALLBACK_PHASE_ENTER,
  ROCPROFILER_CALLBACK_PHASE_EXIT,
  ROCPROFILER_CALLBACK_PHASE_UNLOAD = ROCPROFILER_CALLBACK_PHASE_EXIT,
  ROCPROFILER_CALLBACK_PHASE_LAST,
} rocprofiler_callback_phase_t;

/* What callbacks are called for. */
typedef enum {
  ROCPROFILER_CALLBACK_TRACING_NONE = 0,
  ROCPROFILER_CALLBACK_TRACING_HSA_CORE_API,
  ROCPROFILER_CALLBACK_TRACING_HSA_AMD_EXT_API,
  ROCPROFILER_CALLBACK_TRACING_HSA_IMAGE_EXT_API,
  ROCPROFILER_CALLBACK_TRACING_HSA_FINALIZE_EXT_API,
  ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API,
  ROCPROFILER_CALLBACK_TRACING_HIP_COMPILER_API,
  ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API,
  ROCPROFILER_CALLBACK_TRACING_MARKER_CONTROL_API,
  ROCPROFILER_CALLBACK_TRACING_MARKER_NAME_API,
  ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT,
  ROCPROFILER_CALLBACK_TRACING_SCRATCH_MEMORY,
  ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH,
  ROCPROFILER_CALLBACK_TRACING_MEMORY_COPY,
  ROCPROFILER_CALLBACK_TRACING_RCCL_API,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_CALLBACK_TRACING_OMPT,
  ROCPROFILER_CALLBACK_TRACING_MEMORY_ALLOCATION,
  ROCPROFILER_CALLBACK_TRACING_RUNTIME_INITIALIZATION,
  ROCPROFILER_CALLBACK_TRACING_ROCDECODE_API,
  ROCPROFILER_CALLBACK_TRACING_ROCJPEG_API,
  ROCPROFILER_CALLBACK_TRACING_HIP_STREAM,
  ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_RANGE_API,
#endif
  ROCPROFILER_CALLBACK_TRACING_LAST,
} rocprofiler_callback_tracing_kind_t;

/* What records are written of. */
typedef enum {
  ROCPROFILER_BUFFER_TRACING_NONE = 0,
  ROCPROFILER_BUFFER_TRACING_HSA_CORE_API,
  ROCPROFILER_BUFFER_TRACING_HSA_AMD_EXT_API,
  ROCPROFILER_BUFFER_TRACING_HSA_IMAGE_EXT_API,
  ROCPROFILER_BUFFER_TRACING_HSA_FINALIZE_EXT_API,
  ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API,
  ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API,
  ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API,
  ROCPROFILER_BUFFER_TRACING_MARKER_CONTROL_API,
  ROCPROFILER_BUFFER_TRACING_MARKER_NAME_API,
  ROCPROFILER_BUFFER_TRACING_MEMORY_COPY,
  ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH,
#if ROCPROFILER_SDK_INTERFACE < 1
  ROCPROFILER_BUFFER_TRACING_PAGE_MIGRATION,
#endif
  ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY,
  ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT,
  ROCPROFILER_BUFFER_TRACING_RCCL_API,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_BUFFER_TRACING_OMPT,
  ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION,
  ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION,
  ROCPROFILER_BUFFER_TRACING_ROCDECODE_API,
  ROCPROFILER_BUFFER_TRACING_ROCJPEG_API,
  ROCPROFILER_BUFFER_TRACING_HIP_STREAM,
  ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT,
  ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT,
  ROCPROFILER_BUFFER_TRACING_ROCDECODE_API_EXT,
  ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE,
  ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_FAULT,
  ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE,
  ROCPROFILER_BUFFER_TRACING_KFD_EVENT_UNMAP_FROM_GPU,
  ROCPROFILER_BUFFER_TRACING_KFD_EVENT_DROPPED_EVENTS,
  ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE,
  ROCPROFILER_BUFFER_TRACING_KFD_PAGE_FAULT,
  ROCPROFILER_BUFFER_TRACING_KFD_QUEUE,
  ROCPROFILER_BUFFER_TRACING_MARKER_CORE_RANGE_API,
#endif
  ROCPROFILER_BUFFER_TRACING_LAST,
} rocprofiler_buffer_tracing_kind_t;

typedef enum {
  ROCPROFILER_CODE_OBJECT_NONE = 0,
  ROCPROFILER_CODE_OBJECT_LOAD,
  ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER,
#endif
  ROCPROFILER_CODE_OBJECT_LAST,
} rocprofiler_code_object_operation_t;

typedef enum {
  ROCPROFILER_MEMORY_COPY_NONE = 0,
  ROCPROFILER_MEMORY_COPY_HOST_TO_HOST,
  ROCPROFILER_MEMORY_COPY_HOST_TO_DEVICE,
  ROCPROFILER_MEMORY_COPY_DEVICE_TO_HOST,
  ROCPROFILER_MEMORY_COPY_DEVICE_TO_DEVICE,
  ROCPROFILER_MEMORY_COPY_LAST,
} rocprofiler_memory_copy_operation_t;

#if ROCPROFILER_SDK_INTERFACE < 1
typedef enum {
  ROCPROFILER_PAGE_MIGRATION_NONE = 0,
  ROCPROFILER_PAGE_MIGRATION_PAGE_MIGRATE,
  ROCPROFILER_PAGE_MIGRATION_PAGE_FAULT,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND,
  ROCPROFILER_PAGE_MIGRATION_UNMAP_FROM_GPU,
  ROCPROFILER_PAGE_MIGRATION_LAST,
} rocprofiler_page_migration_operation_t;
#else
typedef enum {
  ROCPROFILER_MEMORY_ALLOCATION_NONE = 0,
  ROCPROFILER_MEMORY_ALLOCATION_ALLOCATE,
  ROCPROFILER_MEMORY_ALLOCATION_VMEM_ALLOCATE,
  ROCPROFILER_MEMORY_ALLOCATION_FREE,
  ROCPROFILER_MEMORY_ALLOCATION_VMEM_FREE,
  ROCPROFILER_MEMORY_ALLOCATION_LAST,
} rocprofiler_memory_allocation_operation_t;

typedef enum {
  ROCPROFILER_RUNTIME_INITIALIZATION_NONE = 0,
  ROCPROFILER_RUNTIME_INITIALIZATION_HSA,
  ROCPROFILER_RUNTIME_INITIALIZATION_HIP,
  ROCPROFILER_RUNTIME_INITIALIZATION_MARKER,
  ROCPROFILER_RUNTIME_INITIALIZATION_RCCL,
  ROCPROFILER_RUNTIME_INITIALIZATION_ROCDECODE,
  ROCPROFILER_RUNTIME_INITIALIZATION_ROCJPEG,
  ROCPROFILER_RUNTIME_INITIALIZATION_LAST,
} rocprofiler_runtime_initialization_operation_t;

typedef enum {
  ROCPROFILER_HIP_STREAM_NONE = 0,
  ROCPROFILER_HIP_STREAM_CREATE,
  ROCPROFILER_HIP_STREAM_DESTROY,
  ROCPROFILER_HIP_STREAM_SET,
  ROCPROFILER_HIP_STREAM_LAST,
} rocprofiler_hip_stream_operation_t;
#endif

/* Records in buffers are of completed ones. */
typedef enum {
  ROCPROFILER_KERNEL_DISPATCH_NONE = 0,
  ROCPROFILER_KERNEL_DISPATCH_ENQUEUE,
  ROCPROFILER_KERNEL_DISPATCH_COMPLETE,
  ROCPROFILER_KERNEL_DISPATCH_LAST,
} rocprofiler_kernel_dispatch_operation_t;

/* How samples of program counters are taken, and what the interval between two is measured in: none are taken. */
typedef enum {
  ROCPROFILER_PC_SAMPLING_METHOD_NONE = 0,
  ROCPROFILER_PC_SAMPLING_METHOD_STOCHASTIC,
  ROCPROFILER_PC_SAMPLING_METHOD_HOST_TRAP,
  ROCPROFILER_PC_SAMPLING_METHOD_LAST,
} rocprofiler_pc_sampling_method_t;

typedef enum {
  ROCPROFILER_PC_SAMPLING_UNIT_NONE = 0,
  ROCPROFILER_PC_SAMPLING_UNIT_INSTRUCTIONS,
  ROCPROFILER_PC_SAMPLING_UNIT_CYCLES,
  ROCPROFILER_PC_SAMPLING_UNIT_TIME,
  ROCPROFILER_PC_SAMPLING_UNIT_LAST,
} rocprofiler_pc_sampling_unit_t;

/* Kinds of records of the category PC_SAMPLING. */
typedef enum {
  ROCPROFILER_PC_SAMPLING_RECORD_NONE = 0,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_PC_SAMPLING_RECORD_INVALID_SAMPLE,
  ROCPROFILER_PC_SAMPLING_RECORD_HOST_TRAP_V0_SAMPLE,
  ROCPROFILER_PC_SAMPLING_RECORD_STOCHASTIC_V0_SAMPLE,
#else
  ROCPROFILER_PC_SAMPLING_RECORD_SAMPLE,
#endif
  ROCPROFILER_PC_SAMPLING_RECORD_LAST,
} rocprofiler_pc_sampling_record_kind_t;

/* Which structure rocprofiler_query_counter_info is given. */
typedef enum {
  ROCPROFILER_COUNTER_INFO_VERSION_NONE = 0,
  ROCPROFILER_COUNTER_INFO_VERSION_0,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_COUNTER_INFO_VERSION_1,
#endif
  ROCPROFILER_COUNTER_INFO_VERSION_LAST,
} rocprofiler_counter_info_version_id_t;

/* Kinds of records of the category COUNTERS: none are written. */
typedef enum {
  ROCPROFILER_COUNTER_RECORD_NONE = 0,
  ROCPROFILER_COUNTER_RECORD_PROFILE_COUNTING_DISPATCH_HEADER,
  ROCPROFILER_COUNTER_RECORD_VALUE,
  ROCPROFILER_COUNTER_RECORD_LAST,
} rocprofiler_counter_record_kind_t;

typedef enum {
  ROCPROFILER_COUNTER_FLAG_NONE = 0,
  ROCPROFILER_COUNTER_FLAG_ASYNC,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_COUNTER_FLAG_APPEND_DEFINITION,
#endif
  ROCPROFILER_COUNTER_FLAG_LAST,
} rocprofiler_counter_flag_t;

/* What happens to a record for which there is no room: it is dropped, or waits. */
typedef enum {
  ROCPROFILER_BUFFER_POLICY_NONE = 0,
  ROCPROFILER_BUFFER_POLICY_DISCARD,
  ROCPROFILER_BUFFER_POLICY_LOSSLESS,
  ROCPROFILER_BUFFER_POLICY_LAST,
} rocprofiler_buffer_policy_t;

typedef enum {
  ROCPROFILER_SCRATCH_MEMORY_NONE = 0,
  ROCPROFILER_SCRATCH_MEMORY_ALLOC,
  ROCPROFILER_SCRATCH_MEMORY_FREE,
  ROCPROFILER_SCRATCH_MEMORY_ASYNC_RECLAIM,
  ROCPROFILER_SCRATCH_MEMORY_LAST,
} rocprofiler_scratch_memory_operation_t;

typedef enum {
  ROCPROFILER_SCRATCH_ALLOC_FLAG_NONE = 0,
  ROCPROFILER_SCRATCH_ALLOC_FLAG_USE_ONCE = 1,
  ROCPROFILER_SCRATCH_ALLOC_FLAG_ALT = 2,
} rocprofiler_scratch_alloc_flag_t;

/* Libraries that create threads of their own: bits. */
typedef enum {
  ROCPROFILER_LIBRARY = 1,
  ROCPROFILER_HSA_LIBRARY = 2,
  ROCPROFILER_HIP_LIBRARY = 4,
  ROCPROFILER_MARKER_LIBRARY = 8,
  ROCPROFILER_RCCL_LIBRARY = 16,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_ROCDECODE_LIBRARY = 32,
  ROCPROFILER_ROCJPEG_LIBRARY = 64,
  ROCPROFILER_LIBRARY_LAST = ROCPROFILER_ROCJPEG_LIBRARY
#else
  ROCPROFILER_LIBRARY_LAST = ROCPROFILER_RCCL_LIBRARY
#endif
} rocprofiler_runtime_library_t;

/* Tables of runtimes: bits. */
typedef enum {
  ROCPROFILER_HSA_TABLE = 1,
  ROCPROFILER_HIP_RUNTIME_TABLE = 2,
  ROCPROFILER_HIP_COMPILER_TABLE = 4,
  ROCPROFILER_MARKER_CORE_TABLE = 8,
  ROCPROFILER_MARKER_CONTROL_TABLE = 16,
  ROCPROFILER_MARKER_NAME_TABLE = 32,
  ROCPROFILER_RCCL_TABLE = 64,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_ROCDECODE_TABLE = 128,
  ROCPROFILER_ROCJPEG_TABLE = 256,
  ROCPROFILER_TABLE_LAST = ROCPROFILER_ROCJPEG_TABLE
#else
  ROCPROFILER_TABLE_LAST = ROCPROFILER_RCCL_TABLE
#endif
} rocprofiler_intercept_table_t;

/* ns of CLOCK_BOOTTIME. */
typedef uint64_t rocprofiler_timestamp_t;
#if ROCPROFILER_SDK_INTERFACE >= 1
typedef union rocprofiler_address_t {
  uint64_t handle;
  uint64_t value;
  const void* ptr;
} rocprofiler_address_t;
#else
typedef uint64_t rocprofiler_address_t;
#endif
/* As gettid() has it. */
typedef uint64_t rocprofiler_thread_id_t;
/* By the kind that it is one of; -1 is none of a function. */
typedef int32_t rocprofiler_tracing_operation_t;
typedef uint64_t rocprofiler_kernel_id_t;
typedef uint64_t rocprofiler_dispatch_id_t;
/* Of a counter's value: the counter, and where on the GPU it was read. */
typedef uint64_t rocprofiler_counter_instance_id_t;
/* Of what a GPU has several of, each with a counter of its own. */
typedef uint64_t rocprofiler_counter_dimension_id_t;

typedef union rocprofiler_user_data_t {
  uint64_t value;
  void* ptr;
} rocprofiler_user_data_t;

typedef struct {
  uint64_t handle;
} rocprofiler_context_id_t;

typedef struct {
  uint64_t handle;
} rocprofiler_queue_id_t;

typedef struct {
  uint64_t handle;
} rocprofiler_buffer_id_t;

typedef struct {
  uint64_t handle;
} rocprofiler_agent_id_t;

typedef struct {
  uint64_t handle;
} rocprofiler_counter_id_t;

/* Counters that are read together. */
#if ROCPROFILER_SDK_INTERFACE >= 1
typedef struct {
  uint64_t handle;
} rocprofiler_counter_config_id_t;
#if ROCPROFILER_SDK_BETA_COMPAT > 0
typedef rocprofiler_counter_config_id_t rocprofiler_profile_config_id_t;
#endif
#else
typedef struct {
  uint64_t handle;
} rocprofiler_profile_config_id_t;
#endif

/* Of a call, and of what it has enqueued. */
typedef struct {
  /* Given by this library, from 1 on. */
  uint64_t internal;
  /* Given by the program. */
  rocprofiler_user_data_t external;
#if ROCPROFILER_SDK_INTERFACE >= 1
  /* That of the call that it is made in, if that is recorded, or else 0. */
  uint64_t ancestor;
#endif
} rocprofiler_correlation_id_t;

#define ROCPROFILER_CORRELATION_ID_INTERNAL_NONE ROCPROFILER_UINT64_C(0)

#if ROCPROFILER_SDK_INTERFACE >= 1
#define ROCPROFILER_CORRELATION_ID_ANCESTOR_NONE ROCPROFILER_UINT64_C(0)

/* Of work of GPUs. */
typedef struct {
  uint64_t internal;
  rocprofiler_user_data_t external;
} rocprofiler_async_correlation_id_t;

typedef struct {
  uint64_t handle;
} rocprofiler_stream_id_t;

typedef struct {
  uint8_t bytes[16];
} rocprofiler_uuid_t;

typedef struct {
  uint32_t major;
  uint32_t minor;
  uint32_t patch;
} rocprofiler_version_triplet_t;
#else
typedef rocprofiler_correlation_id_t rocprofiler_async_correlation_id_t;
#endif

typedef struct rocprofiler_dim3_t {
  uint32_t x;
  uint32_t y;
  uint32_t z;
} rocprofiler_dim3_t;

/* What a callback is called with. */
typedef struct rocprofiler_callback_tracing_record_t {
  rocprofiler_context_id_t context_id;
  rocprofiler_thread_id_t thread_id;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_callback_tracing_kind_t kind;
  rocprofiler_tracing_operation_t operation;
  rocprofiler_callback_phase_t phase;
  void* payload;
} rocprofiler_callback_tracing_record_t;

#if defined(__GNUC__)
__extension__
#endif
typedef struct {
  union {
    struct {
      /* rocprofiler_buffer_category_t */
      uint32_t category;
      /* rocprofiler_buffer_tracing_kind_t where the category is TRACING */
      uint32_t kind;
    };
    uint64_t hash;
  };
  /* The record. */
  void* payload;
} rocprofiler_record_header_t;

/* What rocprofiler_record_header_t::hash is. */
static inline uint64_t rocprofiler_record_header_compute_hash(uint32_t category, uint32_t kind) {
  return (uint64_t)category | ((uint64_t)kind << 32);
}

typedef struct rocprofiler_kernel_dispatch_info_t {
  /* Bytes of this structure, without those that are reserved. */
  uint64_t size;
  rocprofiler_agent_id_t agent_id;
  rocprofiler_queue_id_t queue_id;
  rocprofiler_kernel_id_t kernel_id;
  rocprofiler_dispatch_id_t dispatch_id;
  uint32_t private_segment_size;
  uint32_t group_segment_size;
  /* Work-items. */
  rocprofiler_dim3_t workgroup_size;
  rocprofiler_dim3_t grid_size;
  uint8_t reserved_padding[56];
} rocprofiler_kernel_dispatch_info_t;

typedef struct {
  const char* name;
  size_t instance_size;
  rocprofiler_counter_dimension_id_t id;
} rocprofiler_record_dimension_info_t;

/* The value of a counter, of a dispatch where dispatch_id is not 0. */
typedef struct {
  rocprofiler_counter_instance_id_t id;
  double counter_value;
  rocprofiler_dispatch_id_t dispatch_id;
  rocprofiler_user_data_t user_data;
#if ROCPROFILER_SDK_INTERFACE >= 1
  rocprofiler_agent_id_t agent_id;
#endif
} rocprofiler_record_counter_t;

#if ROCPROFILER_SDK_INTERFACE >= 1
/* What 1.0 calls them. */
typedef rocprofiler_record_dimension_info_t rocprofiler_counter_record_dimension_info_t;
typedef rocprofiler_record_counter_t rocprofiler_counter_record_t;
#endif

#if defined(__GNUC__)
__extension__
#endif
typedef struct {
  rocprofiler_counter_id_t id;
  const char* name;
  const char* description;
  const char* block;
  const char* expression;
  uint8_t is_constant : 1;
  uint8_t is_derived : 1;
} rocprofiler_counter_info_v0_t;

typedef struct {
  rocprofiler_record_counter_t* counters;
  uint64_t counters_count;
} rocprofiler_spm_record_t;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_FWD_H_ */
