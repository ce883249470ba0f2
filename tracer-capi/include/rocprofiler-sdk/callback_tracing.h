/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Callbacks: a tool is told of something on the thread that does it. Source and binary compatible with the header of the
 * same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_CALLBACK_TRACING_H_
#define ROCPROFILER_SDK_CALLBACK_TRACING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hip.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/marker.h>
#include <rocprofiler-sdk/rccl.h>

ROCPROFILER_EXTERN_C_INIT

/* The payload of a call. The result is there in the phase EXIT; that of HIP's functions is not known, and 0. */
typedef struct {
  /* Bytes of this structure. */
  uint64_t size;
  rocprofiler_hsa_api_args_t args;
  rocprofiler_hsa_api_retval_t retval;
} rocprofiler_callback_tracing_hsa_api_data_t;

typedef struct {
  uint64_t size;
  rocprofiler_hip_api_args_t args;
  rocprofiler_hip_api_retval_t retval;
} rocprofiler_callback_tracing_hip_api_data_t;

typedef struct {
  uint64_t size;
  rocprofiler_marker_api_args_t args;
  rocprofiler_marker_api_retval_t retval;
} rocprofiler_callback_tracing_marker_api_data_t;

/* Calls of RCCL are not told. */
typedef struct {
  uint64_t size;
  rocprofiler_rccl_api_args_t args;
  rocprofiler_rccl_api_retval_t retval;
} rocprofiler_callback_tracing_rccl_api_data_t;

/* Where a code object was loaded from. */
typedef enum {
  ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_NONE = 0,
  ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_FILE = 1,
  ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_MEMORY = 2,
  ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_LAST,
} rocprofiler_code_object_storage_type_t;

/* The payload of CODE_OBJECT_LOAD: a code object on an agent, in the phases LOAD and UNLOAD. What it points at stays. */
#if defined(__GNUC__)
__extension__
#endif
typedef struct {
  /* Bytes of this structure. */
  uint64_t size;
  /* From 1 on. */
  uint64_t code_object_id;
#if ROCPROFILER_SDK_INTERFACE >= 1
  union {
    rocprofiler_agent_id_t agent_id;
    rocprofiler_agent_id_t rocp_agent;
  };
#else
  rocprofiler_agent_id_t rocp_agent;
#endif
#if defined(ROCPROFILER_HAS_HSA)
  hsa_agent_t hsa_agent;
#else
  struct {
    uint64_t handle;
  } hsa_agent;
#endif
  const char* uri;
  /* Where it is loaded, so many bytes, and the difference to the addresses in it. */
  uint64_t load_base;
  uint64_t load_size;
  int64_t load_delta;
  rocprofiler_code_object_storage_type_t storage_type;
  union {
    struct {
      int storage_file;
    };
    struct {
      uint64_t memory_base;
      uint64_t memory_size;
    };
  };
} rocprofiler_callback_tracing_code_object_load_data_t;

#define ROCPROFILER_CODE_OBJECT_ID_NONE ROCPROFILER_UINT64_C(0)

/* The payload of CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER: a kernel of a code object, behind that in the phase LOAD and in
 * the phase UNLOAD. */
typedef struct {
  /* Bytes of this structure. */
  uint64_t size;
  /* As records of its dispatches have it. */
  uint64_t kernel_id;
  uint64_t code_object_id;
  /* As the runtime has it: with ".kd" at its end. */
  const char* kernel_name;
  uint64_t kernel_object;
  uint32_t kernarg_segment_size;
  uint32_t kernarg_segment_alignment;
  uint32_t group_segment_size;
  uint32_t private_segment_size;
  /* Registers; 0 where a context starts when the kernel was there. */
  uint32_t sgpr_count;
  uint32_t arch_vgpr_count;
  uint32_t accum_vgpr_count;
#if ROCPROFILER_SDK_INTERFACE >= 1
  /* Where its code begins, behind its descriptor, and the address; 0 if they are not known. */
  int64_t kernel_code_entry_byte_offset;
  rocprofiler_address_t kernel_address;
#endif
} rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t;

/* The payload of KERNEL_DISPATCH: of ENQUEUE in the phases ENTER and EXIT, when the kernel has been enqueued, on the thread
 * that has done so; of COMPLETE in the phase NONE, when it is done, on another one. */
typedef struct rocprofiler_callback_tracing_kernel_dispatch_data_t {
  /* Bytes of this structure. */
  uint64_t size;
  /* 0 until it is done. */
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_callback_tracing_kernel_dispatch_data_t;

/* The payload of MEMORY_COPY: in the phase ENTER, when it has been enqueued, on the thread that has done so; in the phase
 * EXIT, when it is done, on another one. */
typedef struct {
  uint64_t size;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_agent_id_t dst_agent_id;
  rocprofiler_agent_id_t src_agent_id;
  uint64_t bytes;
#if ROCPROFILER_SDK_INTERFACE >= 1
  rocprofiler_address_t dst_address;
  rocprofiler_address_t src_address;
#endif
} rocprofiler_callback_tracing_memory_copy_data_t;

/* The payload of SCRATCH_MEMORY, in the phases ENTER and EXIT. */
typedef struct rocprofiler_callback_tracing_scratch_memory_data_t {
  /* Bytes of this structure. */
  uint64_t size;
  rocprofiler_agent_id_t agent_id;
  rocprofiler_queue_id_t queue_id;
  rocprofiler_scratch_alloc_flag_t flags;
  /* Which of the arguments are there. */
  hsa_amd_tool_event_kind_t args_kind;
  rocprofiler_scratch_memory_args_t args;
} rocprofiler_callback_tracing_scratch_memory_data_t;

#if ROCPROFILER_SDK_INTERFACE >= 1
/* The payload of MEMORY_ALLOCATION, in the phases ENTER and EXIT: as of its records. Times, and the address of memory that is
 * allocated, are there in EXIT. */
typedef struct rocprofiler_callback_tracing_memory_allocation_data_t {
  /* Bytes of this structure. */
  uint64_t size;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_agent_id_t agent_id;
  rocprofiler_address_t address;
  uint64_t allocation_size;
} rocprofiler_callback_tracing_memory_allocation_data_t;

/* The payload of RUNTIME_INITIALIZATION, in the phase NONE: as of its records. */
typedef struct rocprofiler_callback_tracing_runtime_initialization_data_t {
  /* Bytes of this structure. */
  uint64_t size;
  uint64_t version;
  uint64_t instance;
} rocprofiler_callback_tracing_runtime_initialization_data_t;

/* The payload of HIP_STREAM: of CREATE and of DESTROY in the phase NONE, behind the call; of SET in the phases ENTER and
 * EXIT, around a call that uses the stream. */
typedef struct rocprofiler_callback_tracing_hip_stream_data_t {
  /* Bytes of this structure. */
  uint64_t size;
  /* 0 of the null stream. The next stream that is made at the same address has another one. */
  rocprofiler_stream_id_t stream_id;
  /* As HIP has it: hipStream_t. */
  rocprofiler_address_t stream_value;
} rocprofiler_callback_tracing_hip_stream_data_t;
#endif

/* Is told of something: of a call twice, in the phases ENTER and EXIT. What it leaves at user_data in ENTER is there in
 * EXIT, and what it leaves there when work is enqueued is there when that is done. Calls that it makes call no callback. An external correlation id that it gives the thread in ENTER counts for the
 * call, and for what the call enqueues. */
typedef void (*rocprofiler_callback_tracing_cb_t)(rocprofiler_callback_tracing_record_t record,
                                                  rocprofiler_user_data_t* user_data, void* callback_data)
    ROCPROFILER_NONNULL(2);

/* Not 0 ends the iteration. */
typedef int (*rocprofiler_callback_tracing_kind_cb_t)(rocprofiler_callback_tracing_kind_t kind, void* data);
typedef int (*rocprofiler_callback_tracing_kind_operation_cb_t)(rocprofiler_callback_tracing_kind_t kind,
                                                                rocprofiler_tracing_operation_t operation,
                                                                void* data);

/* Gets an argument: which one it is, where its value is, how many times that can be followed, its type and name in C,
 * its value as text, and how often it was followed for that: never. Not 0 ends the iteration. */
typedef int (*rocprofiler_callback_tracing_operation_args_cb_t)(
    rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, uint32_t arg_number,
    const void* const arg_value_addr, int32_t arg_indirection_count, const char* arg_type, const char* arg_name,
    const char* arg_value_str, int32_t arg_dereference_count, void* data);

/* Has a callback called for a kind, for some operations or for all: only inside of a tool's initialize function.
 * NOT_IMPLEMENTED for kinds that no callbacks are called for; why is told on standard error. */
rocprofiler_status_t rocprofiler_configure_callback_tracing_service(
    rocprofiler_context_id_t context_id, rocprofiler_callback_tracing_kind_t kind,
    const rocprofiler_tracing_operation_t* operations, size_t operations_count,
    rocprofiler_callback_tracing_cb_t callback, void* callback_args) ROCPROFILER_API;

/* The name of a kind, and its length; each place may be null. */
rocprofiler_status_t rocprofiler_query_callback_tracing_kind_name(rocprofiler_callback_tracing_kind_t kind,
                                                                  const char** name,
                                                                  uint64_t* name_len) ROCPROFILER_API;

/* The same of an operation. */
rocprofiler_status_t rocprofiler_query_callback_tracing_kind_operation_name(
    rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, const char** name,
    uint64_t* name_len) ROCPROFILER_API;

/* Calls a function with each kind, NONE first. */
rocprofiler_status_t rocprofiler_iterate_callback_tracing_kinds(
    rocprofiler_callback_tracing_kind_cb_t callback, void* data) ROCPROFILER_API ROCPROFILER_NONNULL(1);

/* The same with each operation of a kind. */
rocprofiler_status_t rocprofiler_iterate_callback_tracing_kind_operations(
    rocprofiler_callback_tracing_kind_t kind, rocprofiler_callback_tracing_kind_operation_cb_t callback,
    void* data) ROCPROFILER_API ROCPROFILER_NONNULL(2);

/* Calls a function with each argument of a call, whose record a callback has got and has not returned yet. Strings are
 * read for the text of a value, and nothing else is that arguments point at. */
rocprofiler_status_t rocprofiler_iterate_callback_tracing_kind_operation_args(
    rocprofiler_callback_tracing_record_t record, rocprofiler_callback_tracing_operation_args_cb_t callback,
    int32_t max_dereference_count, void* user_data) ROCPROFILER_API ROCPROFILER_NONNULL(2);

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_CALLBACK_TRACING_H_ */
