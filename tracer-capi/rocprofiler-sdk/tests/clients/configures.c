// A program that is its own tool, and uses every function that configures: also as C++.
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

#define IS(call, status) CHECK((call) == ROCPROFILER_STATUS_##status)

static rocprofiler_context_id_t context = {0};
static rocprofiler_buffer_id_t buffer = {0};
static int before = 0, after = 0, of_hip = 0, finalized = 0, configured = 0;

static void count(rocprofiler_runtime_library_t library, void* counter) {
  CHECK(library == ROCPROFILER_LIBRARY);
  ++*(int*)counter;
}

static void take(rocprofiler_context_id_t of, rocprofiler_buffer_id_t id, rocprofiler_record_header_t** headers, size_t length,
                 void* data, uint64_t dropped) {
  (void)of, (void)id, (void)headers, (void)length, (void)data, (void)dropped;
}

static void tell(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* kept, void* data) {
  (void)record, (void)kept, (void)data;
}

static int argument(rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, uint32_t number,
                    const void* const place, int32_t indirections, const char* type, const char* name, const char* value,
                    int32_t followed, void* data) {
  (void)kind, (void)operation, (void)number, (void)place, (void)indirections, (void)type, (void)name, (void)followed;
  strcat((char*)data, value);
  strcat((char*)data, " ");
  return number == 1;
}

static int ask(rocprofiler_thread_id_t thread, rocprofiler_context_id_t of, rocprofiler_external_correlation_id_request_kind_t kind,
               rocprofiler_tracing_operation_t operation, uint64_t id, rocprofiler_user_data_t* external, void* data) {
  (void)thread, (void)of, (void)kind, (void)operation, (void)id, (void)external, (void)data;
  return 1;
}

static void requests(void) {
  const rocprofiler_context_id_t none = ROCPROFILER_CONTEXT_NONE;
  const rocprofiler_external_correlation_id_request_kind_t copies[2] = {ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY,
                                                                        ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY};
  const rocprofiler_external_correlation_id_request_kind_t no_kind = ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_NONE;
  IS(rocprofiler_configure_external_correlation_id_request_service(none, NULL, 0, ask, NULL), ERROR_CONTEXT_NOT_FOUND);
  IS(rocprofiler_configure_external_correlation_id_request_service(context, NULL, 1, ask, NULL), ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_configure_external_correlation_id_request_service(context, &no_kind, 1, ask, NULL), ERROR_KIND_NOT_FOUND);
  IS(rocprofiler_configure_external_correlation_id_request_service(context, copies, 2, ask, NULL),
     ERROR_SERVICE_ALREADY_CONFIGURED);
  IS(rocprofiler_configure_external_correlation_id_request_service(context, copies, 1, ask, NULL), SUCCESS);
  IS(rocprofiler_configure_external_correlation_id_request_service(context, NULL, 0, ask, NULL),
     ERROR_SERVICE_ALREADY_CONFIGURED);
}

static void callbacks(void) {
  rocprofiler_context_id_t none = ROCPROFILER_CONTEXT_NONE;
  const rocprofiler_callback_tracing_kind_t core = ROCPROFILER_CALLBACK_TRACING_HSA_CORE_API;
  const rocprofiler_callback_tracing_kind_t hip = ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API;
  const rocprofiler_tracing_operation_t beyond = 10000, first = 0;
  IS(rocprofiler_configure_callback_tracing_service(none, core, NULL, 0, tell, NULL), ERROR_CONTEXT_NOT_FOUND);
  IS(rocprofiler_configure_callback_tracing_service(context, core, &beyond, 1, tell, NULL), ERROR_OPERATION_NOT_FOUND);
  IS(rocprofiler_configure_callback_tracing_service(context, core, NULL, 1, tell, NULL), ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_configure_callback_tracing_service(context, core, NULL, 0, NULL, NULL), ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_configure_callback_tracing_service(context, core, &first, 1, tell, NULL), SUCCESS);
  IS(rocprofiler_configure_callback_tracing_service(context, core, NULL, 0, tell, NULL), ERROR_SERVICE_ALREADY_CONFIGURED);
  IS(rocprofiler_configure_callback_tracing_service(context, hip, NULL, 0, tell, NULL), SUCCESS);
  const rocprofiler_tracing_operation_t kernels[] = {ROCPROFILER_CODE_OBJECT_LAST - 1, ROCPROFILER_CODE_OBJECT_LAST};
  const rocprofiler_callback_tracing_kind_t code = ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT;
  IS(rocprofiler_configure_callback_tracing_service(context, code, kernels, 2, tell, NULL), ERROR_OPERATION_NOT_FOUND);
  IS(rocprofiler_configure_callback_tracing_service(context, code, kernels, 1, tell, NULL), SUCCESS);
  const rocprofiler_callback_tracing_kind_t finalizer = ROCPROFILER_CALLBACK_TRACING_HSA_FINALIZE_EXT_API;
  IS(rocprofiler_configure_callback_tracing_service(context, finalizer, NULL, 0, tell, NULL), SUCCESS);
  IS(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_RCCL_API, NULL, 0, tell, NULL),
     ERROR_NOT_IMPLEMENTED);
  IS(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_NONE, NULL, 0, tell, NULL),
     ERROR_KIND_NOT_FOUND);
  IS(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_LAST, NULL, 0, tell, NULL),
     ERROR_KIND_NOT_FOUND);
}

// Of a record that looks as one of a callback's.
static void iterate(void) {
  uint64_t payload[15] = {120, 16, 4096};
  char values[256] = "";
  rocprofiler_callback_tracing_record_t record;
  memset(&record, 0, sizeof record);
  record.kind = ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API;
  record.operation = ROCPROFILER_HIP_RUNTIME_API_ID_hipMemcpy;
  IS(rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 0, values), ERROR_INVALID_ARGUMENT);
  record.payload = payload;
  IS(rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 0, values), SUCCESS);
  CHECK(strcmp(values, "0x10 0x1000 ") == 0);
  record.kind = ROCPROFILER_CALLBACK_TRACING_MEMORY_COPY;
  IS(rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 0, values), ERROR_NOT_IMPLEMENTED);
  record.kind = ROCPROFILER_CALLBACK_TRACING_NONE;
  IS(rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 0, values), ERROR_INVALID_ARGUMENT);
}

static void contexts(void) {
  int status = 7;
  rocprofiler_context_id_t none = ROCPROFILER_CONTEXT_NONE;
  IS(rocprofiler_create_context(&context), SUCCESS);
#if ROCPROFILER_SDK_INTERFACE >= 1
  IS(rocprofiler_create_context(&context), ERROR_CONTEXT_ID_NOT_ZERO);
#else
  IS(rocprofiler_create_context(&context), ERROR_CONTEXT_INVALID);
#endif
  IS(rocprofiler_context_is_valid(context, &status), SUCCESS);
  CHECK(status == 1);
  IS(rocprofiler_context_is_active(context, &status), SUCCESS);
  CHECK(status == 0);
  IS(rocprofiler_stop_context(context), ERROR_CONTEXT_NOT_FOUND);
  IS(rocprofiler_start_context(context), SUCCESS);
  IS(rocprofiler_start_context(context), SUCCESS);
  IS(rocprofiler_context_is_active(context, &status), SUCCESS);
  CHECK(status == 1);
  IS(rocprofiler_stop_context(context), SUCCESS);
  IS(rocprofiler_start_context(none), ERROR_CONTEXT_NOT_FOUND);
  IS(rocprofiler_stop_context(none), ERROR_CONTEXT_NOT_FOUND);
  status = 7;
  IS(rocprofiler_context_is_active(none, &status), ERROR_CONTEXT_NOT_FOUND);
  CHECK(status == 0);
  status = 7;
  IS(rocprofiler_context_is_valid(none, &status), ERROR_CONTEXT_NOT_FOUND);
  CHECK(status == 0);
  rocprofiler_user_data_t data;
  data.value = 5;
  IS(rocprofiler_push_external_correlation_id(context, 1, data), SUCCESS);
  IS(rocprofiler_push_external_correlation_id(none, 1, data), ERROR_CONTEXT_NOT_FOUND);
  data.value = 0;
  IS(rocprofiler_pop_external_correlation_id(context, 1, &data), SUCCESS);
  CHECK(data.value == 5);
  IS(rocprofiler_pop_external_correlation_id(context, 1, &data), SUCCESS);
  CHECK(data.value == 0);
  IS(rocprofiler_pop_external_correlation_id(none, 1, NULL), ERROR_CONTEXT_NOT_FOUND);
}

static void buffers(void) {
  rocprofiler_context_id_t none = ROCPROFILER_CONTEXT_NONE;
  rocprofiler_buffer_id_t other = {0};
  const rocprofiler_buffer_policy_t lossless = ROCPROFILER_BUFFER_POLICY_LOSSLESS;
  IS(rocprofiler_create_buffer(context, 4096, 48, lossless, take, NULL, &buffer), SUCCESS);
  CHECK(buffer.handle != 0 && buffer.handle != context.handle);
  IS(rocprofiler_create_buffer(context, 4096, 48, lossless, take, NULL, &buffer), ERROR_SERVICE_ALREADY_CONFIGURED);
  IS(rocprofiler_create_buffer(none, 4096, 48, lossless, take, NULL, &other), ERROR_CONTEXT_NOT_FOUND);
  IS(rocprofiler_create_buffer(context, 4096, 48, ROCPROFILER_BUFFER_POLICY_NONE, take, NULL, &other),
     ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_create_buffer(context, 0, 0, lossless, take, NULL, &other), ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_create_buffer(context, 1, 0, ROCPROFILER_BUFFER_POLICY_DISCARD, take, NULL, &other), SUCCESS);
  IS(rocprofiler_flush_buffer(other), SUCCESS);
  IS(rocprofiler_destroy_buffer(other), SUCCESS);
  IS(rocprofiler_destroy_buffer(other), ERROR_BUFFER_NOT_FOUND);
  IS(rocprofiler_flush_buffer(other), ERROR_BUFFER_NOT_FOUND);
  rocprofiler_callback_thread_t thread = {7};
  IS(rocprofiler_assign_callback_thread(buffer, thread), ERROR_THREAD_NOT_FOUND);
  IS(rocprofiler_create_callback_thread(&thread), SUCCESS);
  IS(rocprofiler_assign_callback_thread(buffer, thread), SUCCESS);
  IS(rocprofiler_assign_callback_thread(other, thread), ERROR_BUFFER_NOT_FOUND);
}

static int initialize(rocprofiler_client_finalize_t finalize, void* data) {
  (void)finalize;
  CHECK(data == &configured);
  IS(rocprofiler_at_internal_thread_create(count, NULL, ROCPROFILER_LIBRARY, &before), SUCCESS);
  IS(rocprofiler_at_internal_thread_create(NULL, count, 0, &after), SUCCESS);
  IS(rocprofiler_at_internal_thread_create(count, count, ROCPROFILER_HIP_LIBRARY, &of_hip), SUCCESS);
  contexts();
  buffers();
  // The thread of all buffers, and that of one.
  CHECK(before == 2 && after == 2 && of_hip == 0);
  const rocprofiler_buffer_tracing_kind_t finalizer = ROCPROFILER_BUFFER_TRACING_HSA_FINALIZE_EXT_API;
  IS(rocprofiler_configure_buffer_tracing_service(context, finalizer, NULL, 0, buffer), SUCCESS);
  freopen("/dev/null", "w", stderr);
  callbacks();
  requests();
#if ROCPROFILER_SDK_INTERFACE >= 1
  IS(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_HIP_STREAM, NULL, 0, buffer),
     ERROR_NOT_IMPLEMENTED);
#else
  IS(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_PAGE_MIGRATION, NULL, 0, buffer),
     ERROR_INCOMPATIBLE_KERNEL);
  IS(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_RCCL_API, NULL, 0, buffer),
     ERROR_NOT_IMPLEMENTED);
#endif
  IS(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_NONE, NULL, 0, buffer),
     ERROR_KIND_NOT_FOUND);
  IS(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_LAST, NULL, 0, buffer),
     ERROR_KIND_NOT_FOUND);
  return 0;
}

static void finalize(void* data) {
  CHECK(data == &configured);
  finalized++;
}

static rocprofiler_tool_configure_result_t* configure(uint32_t version, const char* text, uint32_t priority,
                                                      rocprofiler_client_id_t* id) {
  CHECK(version == ROCPROFILER_VERSION && strcmp(text, ROCPROFILER_VERSION_STRING) == 0 && priority == 0);
  CHECK(id != NULL);
#if ROCPROFILER_SDK_INTERFACE >= 1
  CHECK(id->size == sizeof *id);
#endif
  configured++;
  static rocprofiler_tool_configure_result_t result = {sizeof(result), initialize, finalize, &configured};
  return &result;
}

__attribute__((destructor)) static void end(void) {
  int status = 7;
  // Only as far as it was checked before.
  if (configured == 0) return;
  CHECK(finalized == 1);
  IS(rocprofiler_is_finalized(&status), SUCCESS);
  CHECK(status == 1);
  IS(rocprofiler_flush_buffer(buffer), ERROR_FINALIZED);
  IS(rocprofiler_start_context(context), ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_context_is_valid(context, &status), SUCCESS);
  CHECK(status == 0);
}

static rocprofiler_status_t agents(rocprofiler_agent_version_t version, const void** agents, size_t count, void* data) {
  CHECK(version == ROCPROFILER_AGENT_INFO_VERSION_0 && data == &configured);
  for (size_t at = 0; at < count; at++) {
    const rocprofiler_agent_t* agent = (const rocprofiler_agent_t*)agents[at];
    CHECK(agent->size == sizeof *agent && agent->id.handle != 0 && agent->logical_node_id == (int32_t)at);
    CHECK(agent->name != NULL && agent->vendor_name != NULL && agent->product_name != NULL && agent->model_name != NULL);
  }
  return ROCPROFILER_STATUS_ERROR_AGENT_MISMATCH;
}

static void query(void) {
  const rocprofiler_agent_version_t version = ROCPROFILER_AGENT_INFO_VERSION_0;
  const size_t size = sizeof(rocprofiler_agent_t);
  IS(rocprofiler_query_available_agents(version, agents, size, &configured), ERROR_AGENT_MISMATCH);
  IS(rocprofiler_query_available_agents(version, agents, size + 1, &configured), ERROR_INCOMPATIBLE_ABI);
  IS(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_NONE, agents, size, &configured),
     ERROR_INVALID_ARGUMENT);
}

static void tables(rocprofiler_intercept_table_t type, uint64_t version, uint64_t instance, void** all, uint64_t count,
                   void* data) {
  (void)type, (void)version, (void)instance, (void)all, (void)count, (void)data;
}

int main(void) {
  int status = 7;
  query();
  uint32_t version[3] = {7, 7, 7};
  uint64_t first = 0, second = 0, thread = 0;
  IS(rocprofiler_get_version(&version[0], &version[1], &version[2]), SUCCESS);
  CHECK(version[0] == ROCPROFILER_VERSION_MAJOR && version[1] == ROCPROFILER_VERSION_MINOR &&
        version[2] == ROCPROFILER_VERSION_PATCH);
  IS(rocprofiler_get_version(NULL, NULL, NULL), SUCCESS);
#if ROCPROFILER_SDK_INTERFACE >= 1
  rocprofiler_version_triplet_t triplet = {7, 7, 7};
  IS(rocprofiler_get_version_triplet(&triplet), SUCCESS);
  CHECK(triplet.major == version[0] && triplet.minor == version[1] && triplet.patch == version[2]);
#endif
  IS(rocprofiler_get_timestamp(&first), SUCCESS);
  IS(rocprofiler_get_timestamp(&second), SUCCESS);
  CHECK(first != 0 && first <= second);
  IS(rocprofiler_get_thread_id(&thread), SUCCESS);
  CHECK(thread != 0);
  for (int code = 0; code < ROCPROFILER_STATUS_LAST; code++) {
    CHECK(rocprofiler_get_status_string((rocprofiler_status_t)code) != NULL);
  }
  CHECK(strcmp(rocprofiler_get_status_name(ROCPROFILER_STATUS_ERROR_FINALIZED), "ROCPROFILER_STATUS_ERROR_FINALIZED") == 0);
  CHECK(rocprofiler_get_status_name(ROCPROFILER_STATUS_LAST) == NULL);
  CHECK(rocprofiler_get_status_string(ROCPROFILER_STATUS_LAST) == NULL);
  IS(rocprofiler_is_initialized(&status), SUCCESS);
  CHECK(status == 0);
  IS(rocprofiler_create_context(&context), ERROR_CONFIGURATION_LOCKED);
  CHECK(context.handle == ROCPROFILER_CONTEXT_NONE.handle);
  context.handle = 0;
  IS(rocprofiler_at_intercept_table_registration(NULL, ROCPROFILER_HSA_TABLE, NULL), ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_at_intercept_table_registration(tables, 2 * ROCPROFILER_TABLE_LAST, NULL), ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_at_intercept_table_registration(tables, ROCPROFILER_HSA_TABLE, NULL), SUCCESS);
  IS(rocprofiler_force_configure(configure), SUCCESS);
  IS(rocprofiler_at_intercept_table_registration(tables, ROCPROFILER_HSA_TABLE, NULL), ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_force_configure(configure), ERROR_CONFIGURATION_LOCKED);
  CHECK(configured == 1);
  IS(rocprofiler_is_initialized(&status), SUCCESS);
  CHECK(status == 1);
  IS(rocprofiler_is_finalized(&status), SUCCESS);
  CHECK(status == 0);
  iterate();
  rocprofiler_buffer_id_t other = {0};
  rocprofiler_callback_thread_t late = {0};
  IS(rocprofiler_create_buffer(context, 4096, 48, ROCPROFILER_BUFFER_POLICY_LOSSLESS, take, NULL, &other),
     ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_create_callback_thread(&late), ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_assign_callback_thread(buffer, late), ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, NULL, 0, buffer),
     ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_HIP_COMPILER_API, NULL, 0, tell,
                                                    NULL),
     ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_configure_external_correlation_id_request_service(context, NULL, 0, ask, NULL), ERROR_CONFIGURATION_LOCKED);
  IS(rocprofiler_start_context(context), SUCCESS);
  IS(rocprofiler_flush_buffer(buffer), SUCCESS);
  IS(rocprofiler_stop_context(context), SUCCESS);
  return 0;
}
