/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * How a runtime hands its tables of functions over to librocprofiler-sdk, if a tool wants them. Source and binary compatible
 * with the header of the same name of rocprofiler-register 0.4; of 0.5 it has what tells what was
 * handed over. */

#ifndef ROCPROFILER_REGISTER_ROCPROFILER_REGISTER_H_
#define ROCPROFILER_REGISTER_ROCPROFILER_REGISTER_H_

#include <rocprofiler-register/version.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The function of a library by which it is found: it returns the library's version. */
typedef uint32_t (*rocprofiler_register_import_func_t)(void);

/* Which library it is. */
typedef struct {
  uint64_t handle;
} rocprofiler_register_library_indentifier_t;

typedef enum rocprofiler_register_error_code_t {
  ROCP_REG_SUCCESS = 0,
  /* Nobody wants the tables. */
  ROCP_REG_NO_TOOLS,
  /* The thread hands over tables already. */
  ROCP_REG_DEADLOCK,
  /* There is no table. */
  ROCP_REG_BAD_API_TABLE_LENGTH,
  /* Tables of this name are not known. */
  ROCP_REG_UNSUPPORTED_API,
  /* There is no function of the library's. */
  ROCP_REG_INVALID_API_ADDRESS,
  /* librocprofiler-sdk has refused them. */
  ROCP_REG_ROCPROFILER_ERROR,
  /* There were eight of this name before. */
  ROCP_REG_EXCESS_API_INSTANCES,
  ROCP_REG_ERROR_CODE_END
} rocprofiler_register_error_code_t;

/* Hands tables over, whose functions are exchanged when it returns: "hsa", "hip", "hip_compiler", "roctx", "rccl", "rocdecode",
 * "rocjpeg". lib_version: 10000 * major + 100 * minor + patch. */
rocprofiler_register_error_code_t rocprofiler_register_library_api_table(
    const char* lib_name, rocprofiler_register_import_func_t import_func, uint32_t lib_version, void** api_tables,
    uint64_t api_table_length, rocprofiler_register_library_indentifier_t* register_id)
    __attribute__((nonnull(4, 6))) __attribute__((visibility("default")));

/* What was handed over. */
typedef struct {
  size_t size;
  const char* common_name;
  uint32_t lib_version;
  uint64_t api_table_length;
} rocprofiler_register_registration_info_t;

/* Not 0 ends the iteration. */
typedef int (*rocprofiler_register_registration_info_cb_t)(rocprofiler_register_registration_info_t* info, void* data);

/* Calls a function with each, in the order in which they were handed over, also those that nobody took. */
rocprofiler_register_error_code_t rocprofiler_register_iterate_registration_info(
    rocprofiler_register_registration_info_cb_t callback, void* data) __attribute__((nonnull(1)))
__attribute__((visibility("default")));

/* What a code means; null if there is none of this number. */
const char* rocprofiler_register_error_string(rocprofiler_register_error_code_t code)
    __attribute__((visibility("default")));

#define ROCPROFILER_REGISTER_COMPUTE_VERSION_1(MAJOR) (10000 * (MAJOR))
#define ROCPROFILER_REGISTER_COMPUTE_VERSION_2(MAJOR, MINOR) \
  (ROCPROFILER_REGISTER_COMPUTE_VERSION_1(MAJOR) + (100 * (MINOR)))
#define ROCPROFILER_REGISTER_COMPUTE_VERSION_3(MAJOR, MINOR, PATCH) \
  (ROCPROFILER_REGISTER_COMPUTE_VERSION_2(MAJOR, MINOR) + (PATCH))

/* The name of a library's function, and its definition. */
#define ROCPROFILER_REGISTER_IMPORT_FUNC(NAME) rocprofiler_register_import_##NAME
#ifdef __cplusplus
#define ROCPROFILER_REGISTER_DEFINE_IMPORT(NAME, VERSION)                                                     \
  extern "C" {                                                                                                \
  uint32_t ROCPROFILER_REGISTER_IMPORT_FUNC(NAME)(void) __attribute__((visibility("default")));               \
  uint32_t ROCPROFILER_REGISTER_IMPORT_FUNC(NAME)(void) { return VERSION; }                                   \
  }
#else
#define ROCPROFILER_REGISTER_DEFINE_IMPORT(NAME, VERSION)                                       \
  uint32_t ROCPROFILER_REGISTER_IMPORT_FUNC(NAME)(void) __attribute__((visibility("default"))); \
  uint32_t ROCPROFILER_REGISTER_IMPORT_FUNC(NAME)(void) { return VERSION; }
#endif

#ifdef __cplusplus
}
#endif

#endif /* ROCPROFILER_REGISTER_ROCPROFILER_REGISTER_H_ */
