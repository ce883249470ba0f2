// A program whose calls are taken by the library of its argument, if it is given one: LATE, it is loaded behind the first
// call, and asks for the tables then.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rocprofiler-sdk-roctx/roctx.h>
#include <string.h>

#include "check.h"

int main(int count, char** arguments) {
  const int is_late = count > 2 && strcmp(arguments[2], "late") == 0;
  if (is_late) CHECK(roctxRangePushA("early") == 0 && roctxRangePop() == 0);
  void* taker = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(taker != NULL);
  int (*pushes)(void);
  *(void**)(&pushes) = dlsym(taker, "pushes_taken");
  CHECK(pushes != NULL);
  if (is_late) {
    CHECK(roctxRangePushA("before it asks") == 0 && roctxRangePop() == 0 && pushes() == 0);
    uint32_t (*import)(void);
    *(void**)(&import) = dlsym(RTLD_DEFAULT, "rocprofiler_register_import_roctx");
    CHECK(import != NULL && import() == ROCTX_VERSION && import() == ROCTX_VERSION);
  }
  CHECK(roctxRangePushA("taken") == 100 && roctxRangePushA("taken") == 101 && pushes() == 2);
  CHECK(roctxRangePop() == 1);
  CHECK(roctxProfilerPause(7) == 77 && roctxProfilerResume(7) == 0);
  CHECK(roctxNameHipStream("stream", NULL) == 78 && roctxNameOsThread("thread") == 0);
  return 0;
}
