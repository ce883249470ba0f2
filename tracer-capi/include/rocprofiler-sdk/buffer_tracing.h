/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Records in buffers, and what they are written of. Source and binary compatible with the header of the same name
 * of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_BUFFER_TRACING_H_
#define ROCPROFILER_SDK_BUFFER_TRACING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#if ROCPROFILER_SDK_INTERFACE >= 1
#include <rocprofiler-sdk/hip.h>
#endif

ROCPROFILER_EXTERN_C_INIT

/* Calls. */
typedef struct {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_tracing_operation_t operation;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_hsa_api_record_t;

typedef struct {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_tracing_operation_t operation;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_hip_api_record_t;

#if ROCPROFILER_SDK_INTERFACE >= 1
typedef struct rocprofiler_buffer_tracing_hip_api_ext_record_t {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_tracing_operation_t operation;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_thread_id_t thread_id;
  /* As they were when the call began. What they point at may be gone. */
  rocprofiler_hip_api_args_t args;
  /* 0 where HIP does not tell it, as before 6.0. */
  rocprofiler_hip_api_retval_t retval;
} rocprofiler_buffer_tracing_hip_api_ext_record_t;
#endif

typedef struct {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_tracing_operation_t operation;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_marker_api_record_t;

typedef struct {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_tracing_operation_t operation;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_rccl_api_record_t;

/* Copies. */
typedef struct {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_memory_copy_operation_t operation;
  rocprofiler_async_correlation_id_t correlation_id;
  rocprofiler_thread_id_t thread_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_agent_id_t dst_agent_id;
  rocprofiler_agent_id_t src_agent_id;
  uint64_t bytes;
#if ROCPROFILER_SDK_INTERFACE >= 1
  rocprofiler_address_t dst_address;
  rocprofiler_address_t src_address;
#endif
} rocprofiler_buffer_tracing_memory_copy_record_t;

/* Kernels. */
typedef struct rocprofiler_buffer_tracing_kernel_dispatch_record_t {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_kernel_dispatch_operation_t operation;
  rocprofiler_async_correlation_id_t correlation_id;
  rocprofiler_thread_id_t thread_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_buffer_tracing_kernel_dispatch_record_t;

#if ROCPROFILER_SDK_INTERFACE < 1
/* Why pages migrate, why queues are suspended for that, and why pages are unmapped from a GPU. */
typedef enum {
  ROCPROFILER_PAGE_MIGRATION_TRIGGER_NONE = -1,
  ROCPROFILER_PAGE_MIGRATION_TRIGGER_PREFETCH,
  ROCPROFILER_PAGE_MIGRATION_TRIGGER_PAGEFAULT_GPU,
  ROCPROFILER_PAGE_MIGRATION_TRIGGER_PAGEFAULT_CPU,
  ROCPROFILER_PAGE_MIGRATION_TRIGGER_TTM_EVICTION,
  ROCPROFILER_PAGE_MIGRATION_TRIGGER_LAST,
} rocprofiler_page_migration_trigger_t;

typedef enum {
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_NONE = -1,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_SVM,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_USERPTR,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_TTM,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_SUSPEND,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_CRIU_CHECKPOINT,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_CRIU_RESTORE,
  ROCPROFILER_PAGE_MIGRATION_QUEUE_SUSPEND_TRIGGER_LAST,
} rocprofiler_page_migration_queue_suspend_trigger_t;

typedef enum {
  ROCPROFILER_PAGE_MIGRATION_UNMAP_FROM_GPU_TRIGGER_NONE = -1,
  ROCPROFILER_PAGE_MIGRATION_UNMAP_FROM_GPU_TRIGGER_MMU_NOTIFY,
  ROCPROFILER_PAGE_MIGRATION_UNMAP_FROM_GPU_TRIGGER_MMU_NOTIFY_MIGRATE,
  ROCPROFILER_PAGE_MIGRATION_UNMAP_FROM_GPU_TRIGGER_UNMAP_FROM_CPU,
  ROCPROFILER_PAGE_MIGRATION_UNMAP_FROM_GPU_TRIGGER_LAST,
} rocprofiler_page_migration_unmap_from_gpu_trigger_t;

/* Pages that migrate: of this kind there are no records, and programs that know them can be built. */
typedef struct {
  __extension__ uint8_t read_fault : 1;
  __extension__ uint8_t migrated : 1;
  uint32_t node_id;
  uint64_t address;
} rocprofiler_buffer_tracing_page_migration_page_fault_record_t;

typedef struct {
  uint64_t start_addr;
  uint64_t end_addr;
  uint32_t from_node;
  uint32_t to_node;
  uint32_t prefetch_node;
  uint32_t preferred_node;
  rocprofiler_page_migration_trigger_t trigger;
} rocprofiler_buffer_tracing_page_migration_page_migrate_record_t;

typedef struct {
  __extension__ uint8_t rescheduled : 1;
  uint32_t node_id;
  rocprofiler_page_migration_queue_suspend_trigger_t trigger;
} rocprofiler_buffer_tracing_page_migration_queue_suspend_record_t;

typedef struct {
  uint32_t node_id;
  uint64_t start_addr;
  uint64_t end_addr;
  rocprofiler_page_migration_unmap_from_gpu_trigger_t trigger;
} rocprofiler_buffer_tracing_page_migration_unmap_from_gpu_record_t;

typedef struct rocprofiler_buffer_tracing_page_migration_record_t {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_tracing_operation_t operation;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  uint32_t pid;
  __extension__ union {
    rocprofiler_buffer_tracing_page_migration_page_fault_record_t page_fault;
    rocprofiler_buffer_tracing_page_migration_page_migrate_record_t page_migrate;
    rocprofiler_buffer_tracing_page_migration_queue_suspend_record_t queue_suspend;
    rocprofiler_buffer_tracing_page_migration_unmap_from_gpu_record_t unmap_from_gpu;
    __extension__ struct {
      uint64_t reserved[12];
    };
  };
} rocprofiler_buffer_tracing_page_migration_record_t;
#endif

/* Scratch memory of queues. */
typedef struct {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_scratch_memory_operation_t operation;
#if ROCPROFILER_SDK_INTERFACE >= 1
  rocprofiler_correlation_id_t correlation_id;
#endif
  rocprofiler_agent_id_t agent_id;
  rocprofiler_queue_id_t queue_id;
  rocprofiler_thread_id_t thread_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
#if ROCPROFILER_SDK_INTERFACE < 1
  rocprofiler_correlation_id_t correlation_id;
#endif
  rocprofiler_scratch_alloc_flag_t flags;
#if ROCPROFILER_SDK_INTERFACE >= 1
  uint64_t allocation_size;
#endif
} rocprofiler_buffer_tracing_scratch_memory_record_t;

/* Correlation ids of which no record follows. */
typedef struct {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_timestamp_t timestamp;
  uint64_t internal_correlation_id;
} rocprofiler_buffer_tracing_correlation_id_retirement_record_t;

#if ROCPROFILER_SDK_INTERFACE >= 1
/* A call of HSA has allocated memory, or given it back. */
typedef struct rocprofiler_buffer_tracing_memory_allocation_record_t {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_memory_allocation_operation_t operation;
  /* That of the call that the thread was in; an own one where no call is traced. */
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_thread_id_t thread_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  /* Which has the memory; 0 of memory that is given back. */
  rocprofiler_agent_id_t agent_id;
  /* 0 if the call has failed. Of VMEM operations the handle. */
  rocprofiler_address_t address;
  /* Bytes; 0 of memory that is given back. */
  uint64_t allocation_size;
} rocprofiler_buffer_tracing_memory_allocation_record_t;

/* A runtime has begun, and its calls can be recorded. */
typedef struct rocprofiler_buffer_tracing_runtime_initialization_record_t {
  uint64_t size;
  rocprofiler_buffer_tracing_kind_t kind;
  rocprofiler_runtime_initialization_operation_t operation;
  /* Zeros. */
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_thread_id_t thread_id;
  rocprofiler_timestamp_t timestamp;
  /* 10000 * major + 100 * minor + patch; 0 of one that does not tell. */
  uint64_t version;
  /* How many of its kind have begun before. */
  uint64_t instance;
} rocprofiler_buffer_tracing_runtime_initialization_record_t;
#endif

/* Not 0 ends the iteration. */
typedef int (*rocprofiler_buffer_tracing_kind_cb_t)(rocprofiler_buffer_tracing_kind_t kind, void* data);
typedef int (*rocprofiler_buffer_tracing_kind_operation_cb_t)(rocprofiler_buffer_tracing_kind_t kind,
                                                              rocprofiler_tracing_operation_t operation,
                                                              void* data);

#if ROCPROFILER_SDK_INTERFACE >= 1
/* Gets an argument: which one it is, where its value is, how many times that could be followed, its type and name in C,
 * and its value as text. Not 0 ends the iteration. */
typedef int (*rocprofiler_buffer_tracing_operation_args_cb_t)(
    rocprofiler_buffer_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, uint32_t arg_number,
    const void* const arg_value_addr, int32_t arg_indirection_count, const char* arg_type, const char* arg_name,
    const char* arg_value_str, void* data);
#endif

/* Has records of a kind written into a buffer, of some operations or of all: only inside of a tool's initialize function.
 * NOT_IMPLEMENTED for kinds that are not traced; why is told on standard error. */
rocprofiler_status_t rocprofiler_configure_buffer_tracing_service(
    rocprofiler_context_id_t context_id, rocprofiler_buffer_tracing_kind_t kind,
    const rocprofiler_tracing_operation_t* operations, size_t operations_count,
    rocprofiler_buffer_id_t buffer_id) ROCPROFILER_API;

/* The name of a kind, and its length; each place may be null. */
rocprofiler_status_t rocprofiler_query_buffer_tracing_kind_name(rocprofiler_buffer_tracing_kind_t kind,
                                                                const char** name,
                                                                uint64_t* name_len) ROCPROFILER_API;

/* The same of an operation. */
rocprofiler_status_t rocprofiler_query_buffer_tracing_kind_operation_name(
    rocprofiler_buffer_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, const char** name,
    uint64_t* name_len) ROCPROFILER_API;

/* Calls a function with each kind, NONE first. */
rocprofiler_status_t rocprofiler_iterate_buffer_tracing_kinds(rocprofiler_buffer_tracing_kind_cb_t callback,
                                                              void* data) ROCPROFILER_API
    ROCPROFILER_NONNULL(1);

/* The same with each operation of a kind. */
rocprofiler_status_t rocprofiler_iterate_buffer_tracing_kind_operations(
    rocprofiler_buffer_tracing_kind_t kind, rocprofiler_buffer_tracing_kind_operation_cb_t callback,
    void* data) ROCPROFILER_API ROCPROFILER_NONNULL(2);

#if ROCPROFILER_SDK_INTERFACE >= 1
/* Calls a function with each argument of a call, whose record a buffer's callback has got and has not returned yet.
 * NOT_IMPLEMENTED of records without arguments. Nothing is read that arguments point at. */
rocprofiler_status_t rocprofiler_iterate_buffer_tracing_record_args(
    rocprofiler_record_header_t record, rocprofiler_buffer_tracing_operation_args_cb_t callback,
    void* user_data) ROCPROFILER_API ROCPROFILER_NONNULL(2);
#endif

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_BUFFER_TRACING_H_ */
