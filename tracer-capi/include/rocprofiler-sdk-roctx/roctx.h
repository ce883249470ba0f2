/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks, ranges and names that a program puts into its trace: functions of librocprofiler-sdk-roctx.so.0. Source and
 * binary compatible with the header of the same name of ROCprofiler-SDK 0.5. Strings are not kept. */

#ifndef ROCPROFILER_SDK_ROCTX_ROCTX_H_
#define ROCPROFILER_SDK_ROCTX_ROCTX_H_

#include <rocprofiler-sdk-roctx/defines.h>
#include <rocprofiler-sdk-roctx/types.h>
#include <rocprofiler-sdk-roctx/version.h>

#include <stddef.h>
#include <stdint.h>

ROCTX_EXTERN_C_INIT

/* Marks a moment. */
void roctxMarkA(const char* message) ROCTX_API ROCTX_NONNULL(1);

/* Begins a range of the calling thread, inside of those that it is in. Returns how many these are. */
int roctxRangePushA(const char* message) ROCTX_API ROCTX_NONNULL(1);

/* Ends the innermost range of the calling thread. Returns how many are left, -1 if there was none. */
int roctxRangePop(void) ROCTX_API;

/* Begins a range of the process, which any thread may end. Returns its id. */
roctx_range_id_t roctxRangeStartA(const char* message) ROCTX_API ROCTX_NONNULL(1);

/* Ends a range of the process. */
void roctxRangeStop(roctx_range_id_t id) ROCTX_API;

/* Asks tools to record nothing of a thread, of all threads if it is 0, and to go on. The library itself does neither.
 * Returns 0, or what a tool says. */
int roctxProfilerPause(roctx_thread_id_t tid) ROCTX_API;
int roctxProfilerResume(roctx_thread_id_t tid) ROCTX_API;

/* Names the calling thread, an agent of HSA, a device and a stream (hipStream_t) of HIP for tools. Nothing else is called
 * so. Returns 0, or what a tool says. */
int roctxNameOsThread(const char* name) ROCTX_API ROCTX_NONNULL(1);
struct hsa_agent_s;
int roctxNameHsaAgent(const char* name, const struct hsa_agent_s* agent) ROCTX_API ROCTX_NONNULL(1, 2);
int roctxNameHipDevice(const char* name, int device_id) ROCTX_API ROCTX_NONNULL(1);
struct ihipStream_t;
int roctxNameHipStream(const char* name, const struct ihipStream_t* stream) ROCTX_API ROCTX_NONNULL(1);

/* The number of the calling thread. Returns 0. */
int roctxGetThreadId(roctx_thread_id_t* tid) ROCTX_API ROCTX_NONNULL(1);

#ifndef roctxMark
#define roctxMark(message) roctxMarkA(message)
#endif
#ifndef roctxRangePush
#define roctxRangePush(message) roctxRangePushA(message)
#endif
#ifndef roctxRangeStart
#define roctxRangeStart(message) roctxRangeStartA(message)
#endif

ROCTX_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_ROCTX_ROCTX_H_ */
