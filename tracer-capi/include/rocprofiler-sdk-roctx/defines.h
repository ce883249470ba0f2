/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How the functions are declared. Source and binary compatible with the header of the same name of ROCprofiler-SDK
 * 0.5. */

#ifndef ROCPROFILER_SDK_ROCTX_DEFINES_H_
#define ROCPROFILER_SDK_ROCTX_DEFINES_H_

#define ROCPROFILER_SDK_ROCTX_VERSION_0_0

#ifdef __cplusplus
#define ROCTX_EXTERN_C_INIT extern "C" {
#define ROCTX_EXTERN_C_FINI }
#else
#define ROCTX_EXTERN_C_INIT
#define ROCTX_EXTERN_C_FINI
#endif

#ifndef ROCTX_ATTRIBUTE
#define ROCTX_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#endif
#ifndef ROCTX_PUBLIC_API
#define ROCTX_PUBLIC_API ROCTX_ATTRIBUTE(visibility("default"))
#endif
#ifndef ROCTX_HIDDEN_API
#define ROCTX_HIDDEN_API ROCTX_ATTRIBUTE(visibility("hidden"))
#endif
#ifndef ROCTX_EXPORT_DECORATOR
#define ROCTX_EXPORT_DECORATOR ROCTX_PUBLIC_API
#endif
#ifndef ROCTX_IMPORT_DECORATOR
#define ROCTX_IMPORT_DECORATOR
#endif
#define ROCTX_EXPORT ROCTX_EXPORT_DECORATOR
#define ROCTX_IMPORT ROCTX_IMPORT_DECORATOR
#ifndef ROCTX_API
#define ROCTX_API ROCTX_IMPORT
#endif
#define ROCTX_NONNULL(...) ROCTX_ATTRIBUTE(nonnull(__VA_ARGS__))

#endif /* ROCPROFILER_SDK_ROCTX_DEFINES_H_ */
