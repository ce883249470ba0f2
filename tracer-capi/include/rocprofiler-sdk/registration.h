/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How a tool takes part. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_REGISTRATION_H_
#define ROCPROFILER_SDK_REGISTRATION_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* The tool may write its name here. */
typedef struct rocprofiler_client_id_t {
#if ROCPROFILER_SDK_INTERFACE >= 1
  /* Bytes of this structure. */
  size_t size;
#endif
  const char* name;
  const uint32_t handle;
} rocprofiler_client_id_t;

/* Finalizes a tool before the end of the process. */
typedef void (*rocprofiler_client_finalize_t)(rocprofiler_client_id_t client);

/* Called when all tools were asked: here a tool makes contexts and buffers. What it returns is ignored. */
typedef int (*rocprofiler_tool_initialize_t)(rocprofiler_client_finalize_t finalize_func, void* tool_data);

/* Called once, at the end. */
typedef void (*rocprofiler_tool_finalize_t)(void* tool_data);

typedef struct rocprofiler_tool_configure_result_t {
  /* Bytes of this structure. */
  size_t size;
  rocprofiler_tool_initialize_t initialize;
  rocprofiler_tool_finalize_t finalize;
  void* tool_data;
} rocprofiler_tool_configure_result_t;

/* Writes 0 before tools are initialized, -1 meanwhile, 1 from then on. */
rocprofiler_status_t rocprofiler_is_initialized(int* status) ROCPROFILER_API ROCPROFILER_NONNULL(1);

/* The same of their end. */
rocprofiler_status_t rocprofiler_is_finalized(int* status) ROCPROFILER_API ROCPROFILER_NONNULL(1);

/* The tool defines it. version: ROCPROFILER_VERSION; priority: how many tools come before it. Null: it takes no part. */
rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t version, const char* runtime_version,
                                                           uint32_t priority, rocprofiler_client_id_t* client_id)
    ROCPROFILER_PUBLIC_API;

typedef rocprofiler_tool_configure_result_t* (*rocprofiler_configure_func_t)(uint32_t version,
                                                                              const char* runtime_version,
                                                                              uint32_t priority,
                                                                              rocprofiler_client_id_t* client_id);

/* Configures a tool that nothing would find, and all others, before a runtime is there. CONFIGURATION_LOCKED if tools are
 * initialized already. */
rocprofiler_status_t rocprofiler_force_configure(rocprofiler_configure_func_t configure_func) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_REGISTRATION_H_ */
