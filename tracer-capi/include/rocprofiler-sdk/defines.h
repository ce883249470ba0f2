/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How the functions are declared. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_DEFINES_H_
#define ROCPROFILER_SDK_DEFINES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define ROCPROFILER_EXTERN_C_INIT extern "C" {
#define ROCPROFILER_EXTERN_C_FINI }
#define ROCPROFILER_CXX_CODE(...) __VA_ARGS__
#define ROCPROFILER_UINT64_C(value) uint64_t(value)
#else
#define ROCPROFILER_EXTERN_C_INIT
#define ROCPROFILER_EXTERN_C_FINI
#define ROCPROFILER_CXX_CODE(...)
#define ROCPROFILER_UINT64_C(value) UINT64_C(value)
#endif

#define ROCPROFILER_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#define ROCPROFILER_PUBLIC_API ROCPROFILER_ATTRIBUTE(visibility("default"))
#define ROCPROFILER_HIDDEN_API ROCPROFILER_ATTRIBUTE(visibility("hidden"))
#define ROCPROFILER_EXPORT ROCPROFILER_PUBLIC_API
#define ROCPROFILER_IMPORT
#define ROCPROFILER_API ROCPROFILER_IMPORT
#define ROCPROFILER_NONNULL(...) ROCPROFILER_ATTRIBUTE(nonnull(__VA_ARGS__))

/* A handle of a value, as an expression. */
#ifdef __cplusplus
#define ROCPROFILER_HANDLE_LITERAL(type, value) (type{value})
#else
#define ROCPROFILER_HANDLE_LITERAL(type, value) ((type){value})
#endif

#endif /* ROCPROFILER_SDK_DEFINES_H_ */
