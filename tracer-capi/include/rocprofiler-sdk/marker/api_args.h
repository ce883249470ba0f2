/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Arguments and results of functions of roctx. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_MARKER_API_ARGS_H_
#define ROCPROFILER_SDK_MARKER_API_ARGS_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/version.h>

#include <rocprofiler-sdk-roctx/api_trace.h>
#include <rocprofiler-sdk-roctx/types.h>

#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* An empty structure has another size in C than in C++. */
typedef struct rocprofiler_marker_api_no_args {
  char empty;
} rocprofiler_marker_api_no_args;

typedef union rocprofiler_marker_api_retval_t {
  int32_t int32_t_retval;
  int64_t int64_t_retval;
  roctx_range_id_t roctx_range_id_t_retval;
} rocprofiler_marker_api_retval_t;

typedef union rocprofiler_marker_api_args_t {
  struct {
    const char* message;
  } roctxMarkA;
#if ROCPROFILER_SDK_INTERFACE >= 1
  /* Of ranges, which are not told yet. */
  struct {
    const char* message;
  } roctxThreadRangeA;
  struct {
    const char* message;
  } roctxProcessRangeA;
#endif
  struct {
    const char* message;
  } roctxRangePushA;
  struct {
    rocprofiler_marker_api_no_args no_args;
  } roctxRangePop;
  struct {
    const char* message;
  } roctxRangeStartA;
  struct {
    roctx_range_id_t id;
  } roctxRangeStop;
  struct {
    roctx_thread_id_t* tid;
  } roctxGetThreadId;
  struct {
    roctx_thread_id_t tid;
  } roctxProfilerPause;
  struct {
    roctx_thread_id_t tid;
  } roctxProfilerResume;
  struct {
    const char* name;
  } roctxNameOsThread;
  struct {
    const char* name;
    const struct hsa_agent_s* agent;
  } roctxNameHsaAgent;
  struct {
    const char* name;
    int device_id;
  } roctxNameHipDevice;
  struct {
    const char* name;
    const struct ihipStream_t* stream;
  } roctxNameHipStream;
} rocprofiler_marker_api_args_t;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_MARKER_API_ARGS_H_ */
