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

int main(void) {
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
  fflush(stdout);
  return 0;
}
