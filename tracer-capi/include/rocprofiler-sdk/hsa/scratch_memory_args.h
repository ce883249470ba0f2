/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What the HSA runtime tells of scratch memory. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_HSA_SCRATCH_MEMORY_ARGS_H_
#define ROCPROFILER_SDK_HSA_SCRATCH_MEMORY_ARGS_H_

#include <stddef.h>
#include <stdint.h>

#include <rocprofiler-sdk/defines.h>

/* ROCm before 6.1 has no such header. */
#if defined(__has_include)
#if __has_include(<hsa/hsa_amd_tool.h>)
#include <hsa/hsa_amd_tool.h>
#define ROCPROFILER_SDK_HAS_TOOL_EVENTS
#endif
#endif
#ifndef ROCPROFILER_SDK_HAS_TOOL_EVENTS
typedef enum {
  HSA_AMD_TOOL_EVENT_MIN = 0,
  HSA_AMD_TOOL_EVENT_SCRATCH_ALLOC_START,
  HSA_AMD_TOOL_EVENT_SCRATCH_ALLOC_END,
  HSA_AMD_TOOL_EVENT_SCRATCH_FREE_START,
  HSA_AMD_TOOL_EVENT_SCRATCH_FREE_END,
  HSA_AMD_TOOL_EVENT_SCRATCH_ASYNC_RECLAIM_START,
  HSA_AMD_TOOL_EVENT_SCRATCH_ASYNC_RECLAIM_END,
  HSA_AMD_TOOL_EVENT_MAX
} hsa_amd_tool_event_kind_t;
#endif
#undef ROCPROFILER_SDK_HAS_TOOL_EVENTS

/* A structure without members has other sizes in C than in C++. */
typedef struct rocprofiler_scratch_memory_no_args {
  char empty;
} rocprofiler_scratch_memory_no_args;

typedef union rocprofiler_scratch_memory_args_t {
  struct {
    /* The packet that wants it, by its index in the queue. */
    uint64_t dispatch_id;
  } alloc_start;
  struct {
    uint64_t dispatch_id;
    /* Bytes. */
    size_t size;
    /* Waves at most. */
    size_t num_slots;
  } alloc_end;
  struct {
    rocprofiler_scratch_memory_no_args no_args;
  } free_start;
  struct {
    rocprofiler_scratch_memory_no_args no_args;
  } free_end;
  struct {
    rocprofiler_scratch_memory_no_args no_args;
  } async_reclaim_start;
  struct {
    rocprofiler_scratch_memory_no_args no_args;
  } async_reclaim_end;
} rocprofiler_scratch_memory_args_t;

#endif /* ROCPROFILER_SDK_HSA_SCRATCH_MEMORY_ARGS_H_ */
