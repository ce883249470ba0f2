/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How the functions are declared. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_DEFINES_H_
#define ROCPROFILER_SDK_DEFINES_H_

#include <stddef.h>
#include <stdint.h>

/* The interface that a program is built for: 0 is 0.5, for librocprofiler-sdk.so.0; 1 is 1.0, for librocprofiler-sdk.so.1,
 * whose numbers and structures are others: -DROCPROFILER_SDK_INTERFACE=1. */
#ifndef ROCPROFILER_SDK_INTERFACE
#define ROCPROFILER_SDK_INTERFACE 0
#endif

/* Names that 1.0 has replaced by others: 0 leaves them out. */
#if ROCPROFILER_SDK_INTERFACE >= 1
#ifndef ROCPROFILER_SDK_BETA_COMPAT
#define ROCPROFILER_SDK_BETA_COMPAT 1
#endif
#if ROCPROFILER_SDK_BETA_COMPAT > 0
#define ROCPROFILER_SDK_BETA_COMPAT_SUPPORTED 1
#endif
#endif

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
