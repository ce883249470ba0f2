/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Tables of runtimes, for tools that put functions of their own into them. Source and binary compatible with the header of
 * the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_INTERCEPT_TABLE_H_
#define ROCPROFILER_SDK_INTERCEPT_TABLE_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* Gets a table that a library has handed over: which one it is, the library's version (10000 * major + 100 * minor + patch; 0
 * where it is not known), how many libraries of its kind have come before, tables, how many. Functions that it puts there
 * are called before those of this library, and have to call on. */
typedef void (*rocprofiler_intercept_library_cb_t)(rocprofiler_intercept_table_t type, uint64_t lib_version,
                                                   uint64_t lib_instance, void** tables, uint64_t num_tables,
                                                   void* user_data);

/* Has a function called with the tables that are meant, bits of rocprofiler_intercept_table_t, or all for 0, when a library
 * hands them over. CONFIGURATION_LOCKED when tools have been initialized. */
rocprofiler_status_t rocprofiler_at_intercept_table_registration(rocprofiler_intercept_library_cb_t callback, int libs,
                                                                 void* data) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_INTERCEPT_TABLE_H_ */
