// A tool whose finalize function throws when the program exits.
#include <rocprofiler-sdk/registration.h>

#include <stdexcept>

static int initialize(rocprofiler_client_finalize_t, void*) { return 0; }

static void finalize(void*) { throw std::runtime_error("it was the tool"); }

extern "C" rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t, const char*, uint32_t,
                                                                      rocprofiler_client_id_t*) {
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
  return &result;
}

int main() { return rocprofiler_force_configure(rocprofiler_configure) != ROCPROFILER_STATUS_SUCCESS; }
