// A tool that is told of the thread that HSA begins as a `std::thread`, as the real runtime does only for memory that a GPU
// shares with the program. With RUNTIME it is that library.
#include <thread>

void starts();

#ifdef RUNTIME
void starts() { std::thread([] {}).join(); }
#else
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include "check.h"

static int before, after;

static void tell(rocprofiler_runtime_library_t library, void* count) {
  CHECK(library == ROCPROFILER_HSA_LIBRARY && before >= after);
  ++*static_cast<int*>(count);
}

static int initialize(rocprofiler_client_finalize_t, void*) { return 0; }

static void is_created(rocprofiler_runtime_library_t library, void*) { tell(library, &after); }

extern "C" rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t, const char*, uint32_t,
                                                                      rocprofiler_client_id_t*) {
  CHECK(rocprofiler_at_internal_thread_create(tell, is_created, ROCPROFILER_HSA_LIBRARY, &before) ==
        ROCPROFILER_STATUS_SUCCESS);
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, nullptr, nullptr};
  return &result;
}

int main() {
  starts();
  CHECK(rocprofiler_force_configure(rocprofiler_configure) == ROCPROFILER_STATUS_SUCCESS);
  for (int count = 1; count <= 3; count++) {
    starts();
    CHECK(before == count && after == count);
  }
}
#endif
