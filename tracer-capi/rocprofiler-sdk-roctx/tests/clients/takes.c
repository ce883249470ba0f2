// A library in the place of librocprofiler-sdk, or of rocprofiler-register: takes the tables, and has functions of its own
// called. AS_REGISTER says which.
#include <rocprofiler-sdk-roctx/api_trace.h>
#include <string.h>

#include "check.h"

static roctxCoreApiTable_t theirs;
static int pushes;

static int push(const char* message) {
  CHECK(strcmp(message, "taken") == 0);
  pushes++;
  return theirs.roctxRangePushA_fn(message) + 100;
}

static int pause_all(roctx_thread_id_t thread) { return thread == 7 ? 77 : 0; }

static int name(const char* text, const struct ihipStream_t* stream) { return stream == NULL && *text == 's' ? 78 : 0; }

int pushes_taken(void) { return pushes; }

static int take(const char* library, void** tables, uint64_t count) {
  CHECK(strcmp(library, "roctx") == 0 && count == 3);
  roctxCoreApiTable_t* core = (roctxCoreApiTable_t*)tables[0];
  roctxControlApiTable_t* control = (roctxControlApiTable_t*)tables[1];
  roctxNameApiTable_t* names = (roctxNameApiTable_t*)tables[2];
  CHECK(core->size == sizeof *core && control->size == sizeof *control && names->size == sizeof *names);
  CHECK(theirs.size == 0);
  theirs = *core;
  core->roctxRangePushA_fn = push;
  control->roctxProfilerPause_fn = pause_all;
  names->roctxNameHipStream_fn = name;
  return 0;
}

#ifdef AS_REGISTER
int rocprofiler_register_library_api_table(const char* library, uint32_t (*import)(void), uint32_t version, void** tables,
                                           uint64_t count, uint64_t* id) {
  CHECK(version == ROCTX_VERSION && import() == version && id != NULL);
  return take(library, tables, count);
}
#else
int rocprofiler_set_api_table(const char* library, uint64_t version, uint64_t instance, void** tables, uint64_t count) {
  CHECK(version == ROCTX_VERSION && instance == 0);
  return take(library, tables, count);
}
#endif
