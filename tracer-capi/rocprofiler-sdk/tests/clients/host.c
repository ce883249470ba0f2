// A program that is no tool. Loads the library, then others, and hands tables over as a runtime does.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include "check.h"

typedef int (*hand_over)(const char*, uint64_t, uint64_t, void**, uint64_t);

int main(int count, char** names) {
  void* library = dlopen(names[1], RTLD_NOW | RTLD_GLOBAL);
  CHECK(library != NULL);
  for (int at = 2; at < count; at++) CHECK(dlopen(names[at], RTLD_NOW | RTLD_LOCAL) != NULL);
  hand_over set_api_table;
  *(void**)&set_api_table = dlsym(library, "rocprofiler_set_api_table");
  CHECK(set_api_table != NULL);
  uint64_t words[8] = {sizeof words};
  // No function is in them.
  void* tables[3] = {words, words, words};
  CHECK(set_api_table("roctx", 1, 0, tables, 3) == 0);
  CHECK(set_api_table("roctx", 1, 1, tables, 3) == 0);
  CHECK(set_api_table("roctx", 1, 2, tables, 2) != 0);
  CHECK(set_api_table("unknown", 1, 0, tables, 1) != 0);
  CHECK(set_api_table(NULL, 1, 0, tables, 1) != 0);
  CHECK(set_api_table("roctx", 1, 0, NULL, 1) != 0);
  printf("main ends\n");
  fflush(stdout);
  return 0;
}
