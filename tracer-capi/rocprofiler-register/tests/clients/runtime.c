// A runtime that hands its tables over, and says what it was told: "hsa <code>" and so on. Also as C++.
#include <rocprofiler-register/rocprofiler-register.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

ROCPROFILER_REGISTER_DEFINE_IMPORT(roctx, ROCPROFILER_REGISTER_COMPUTE_VERSION_3(1, 2, 3))

static rocprofiler_register_error_code_t hand_over(const char* name, uint64_t count, uint64_t* id) {
  static uint64_t words[8] = {sizeof words};
  // No function is in them.
  static void* tables[3] = {words, words, words};
  rocprofiler_register_library_indentifier_t own = {77};
  const rocprofiler_register_error_code_t code =
      rocprofiler_register_library_api_table(name, rocprofiler_register_import_roctx, 10203, tables, count, &own);
  if (id) *id = own.handle;
  return code;
}

static int known;

static int is_known(rocprofiler_register_registration_info_t* info, void* most) {
  CHECK(info->size == sizeof *info && strcmp(info->common_name, "roctx") == 0 && info->lib_version == 10203);
  // The second one had one table.
  CHECK(info->api_table_length == (known == 1 ? 1 : 3));
  return ++known == *(int*)most;
}

static int count_known(int most) {
  known = 0;
  CHECK(rocprofiler_register_iterate_registration_info(is_known, &most) == ROCP_REG_SUCCESS);
  return known;
}

int main(void) {
  CHECK(count_known(1) == 0);
  uint64_t first = 0, second = 0;
  CHECK(hand_over("roctx", 0, NULL) == ROCP_REG_BAD_API_TABLE_LENGTH);
  CHECK(hand_over("unknown", 1, NULL) == ROCP_REG_UNSUPPORTED_API);
  CHECK(hand_over(NULL, 1, NULL) == ROCP_REG_UNSUPPORTED_API);
  rocprofiler_register_library_indentifier_t id = {0};
  void* none[1] = {NULL};
  CHECK(rocprofiler_register_library_api_table("roctx", NULL, 1, none, 1, &id) == ROCP_REG_INVALID_API_ADDRESS);
  printf("roctx %d\n", (int)hand_over("roctx", 3, &first));
  // Too few.
  printf("few %d\n", (int)hand_over("roctx", 1, &second));
  CHECK(first != second);
  for (int instance = 2; instance < 8; instance++) CHECK(hand_over("roctx", 3, NULL) <= ROCP_REG_NO_TOOLS);
  CHECK(hand_over("roctx", 3, NULL) == ROCP_REG_EXCESS_API_INSTANCES);
  for (int code = 0; code < ROCP_REG_ERROR_CODE_END; code++) {
    CHECK(strlen(rocprofiler_register_error_string((rocprofiler_register_error_code_t)code)) > 0);
  }
  CHECK(rocprofiler_register_error_string(ROCP_REG_ERROR_CODE_END) == NULL);
  CHECK(count_known(5) == 5 && count_known(100) == 8);
  fflush(stdout);
  return 0;
}
