// A program that is its own tool, of the 1.0 interface, and whose callback of a runtime that begins calls roctx. That of HSA
// begins in both ways that it has, with a table that nobody knows.
#include <stdbool.h>
#include <rocprofiler-sdk-roctx/roctx.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include "check.h"

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

// By which a runtime hands its tables over.
int rocprofiler_set_api_table(const char* name, uint64_t version, uint64_t instance, void** tables, uint64_t count);

// And how HSA's loads a tool.
bool OnLoad(const void* table, uint64_t version, uint64_t failed, const char* const* names);

static rocprofiler_context_id_t context = {0};
static int runtimes, marks, tables_of_hsa;

static void table(rocprofiler_intercept_table_t type, uint64_t version, uint64_t instance, void** tables, uint64_t count,
                  void* data) {
  (void)tables, (void)data;
  CHECK(type == ROCPROFILER_HSA_TABLE && version == 7 && instance == 0 && count == 1);
  tables_of_hsa++;
}

static void tell(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* kept, void* data) {
  (void)kept, (void)data;
  if (record.kind == ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API) {
    marks++;
    return;
  }
  CHECK(record.operation == (runtimes == 0 ? ROCPROFILER_RUNTIME_INITIALIZATION_RCCL : ROCPROFILER_RUNTIME_INITIALIZATION_HSA));
  runtimes++;
  roctxMarkA("inside");
}

static int initialize(rocprofiler_client_finalize_t finalize, void* data) {
  (void)finalize, (void)data;
  const rocprofiler_callback_tracing_kind_t kinds[] = {ROCPROFILER_CALLBACK_TRACING_RUNTIME_INITIALIZATION,
                                                       ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API};
  DONE(rocprofiler_at_intercept_table_registration(table, ROCPROFILER_HSA_TABLE, NULL));
  DONE(rocprofiler_create_context(&context));
  for (int at = 0; at < 2; at++) {
    DONE(rocprofiler_configure_callback_tracing_service(context, kinds[at], NULL, 0, tell, NULL));
  }
  return 0;
}

static rocprofiler_tool_configure_result_t* configure(uint32_t version, const char* text, uint32_t priority,
                                                      rocprofiler_client_id_t* id) {
  (void)version, (void)text, (void)priority;
  id->name = "runtimes";
  static rocprofiler_tool_configure_result_t result = {sizeof(result), initialize, NULL, NULL};
  return &result;
}

int main(void) {
  DONE(rocprofiler_force_configure(configure));
  DONE(rocprofiler_start_context(context));
  roctxMarkA("outside");
  CHECK(marks == 2);
  uint64_t words[2] = {sizeof words};
  void* tables[1] = {words};
  CHECK(rocprofiler_set_api_table("rccl", 1, 0, tables, 1) == 0);
  // Calls that a callback makes call none.
  CHECK(runtimes == 1 && marks == 2);
  // Tools would take their own functions for the runtime's, the second time.
  CHECK(rocprofiler_set_api_table("hsa", 7, 0, tables, 1) == 0 && OnLoad(words, 0, 0, NULL));
  CHECK(runtimes == 2 && tables_of_hsa == 1);
  return 0;
}
