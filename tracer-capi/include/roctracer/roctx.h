/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks and ranges that a program puts into its trace. Source and binary compatible with the roctx.h of
 * roctracer 4.1. Functions of libroctx64.so.4. */

#ifndef ROCTX_H_
#define ROCTX_H_ 1

#include <stdint.h>

#define ROCTX_CALL
#define ROCTX_EXPORT_DECORATOR __attribute__((visibility("default")))
#define ROCTX_IMPORT_DECORATOR
#define ROCTX_EXPORT ROCTX_EXPORT_DECORATOR ROCTX_CALL
#define ROCTX_IMPORT ROCTX_IMPORT_DECORATOR ROCTX_CALL
#define ROCTX_API ROCTX_IMPORT

/* Stands at functions whose symbol version is "ROCTX_4.1". */
#define ROCTX_VERSION_4_1

/* Version of this interface. A library serves a client if its major version is the same and its minor
 * version is not lower. */
#define ROCTX_VERSION_MAJOR 4
#define ROCTX_VERSION_MINOR 1

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library that is loaded. */
ROCTX_API uint32_t roctx_version_major(void) ROCTX_VERSION_4_1;
ROCTX_API uint32_t roctx_version_minor(void) ROCTX_VERSION_4_1;

/* Marks a moment. */
ROCTX_API void roctxMarkA(const char* message) ROCTX_VERSION_4_1;
#define roctxMark(message) roctxMarkA(message)

/* Begins a range of the calling thread, inside of those that it has begun before. Returns how many those
 * are. */
ROCTX_API int roctxRangePushA(const char* message) ROCTX_VERSION_4_1;
#define roctxRangePush(message) roctxRangePushA(message)

/* Ends the innermost range of the calling thread. Returns how many are left, -1 if there was none. */
ROCTX_API int roctxRangePop(void) ROCTX_VERSION_4_1;

/* A range of the process. 0 is none. */
typedef uint64_t roctx_range_id_t;

/* Begins a range that any thread can end. Returns its id. */
ROCTX_API roctx_range_id_t roctxRangeStartA(const char* message) ROCTX_VERSION_4_1;
#define roctxRangeStart(message) roctxRangeStartA(message)

/* Ends a range by its id. */
ROCTX_API void roctxRangeStop(roctx_range_id_t id) ROCTX_VERSION_4_1;

#ifdef __cplusplus
}
#endif

#endif /* ROCTX_H_ */
