// A program of HIP's in C++11 that is its own tool, and whose callbacks do as they like.

#include <hip/hip_version.h>
#include <hsa/hsa.h>
#include <pthread.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"

#if HIP_VERSION >= 60000000
extern "C" hipError_t hipStreamQuery_spt(hipStream_t);
#endif

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

using Record = rocprofiler_callback_tracing_record_t;
using Data = rocprofiler_callback_tracing_hip_api_data_t;

static const auto HIP = ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API;
static const auto ENTER = ROCPROFILER_CALLBACK_PHASE_ENTER;

// Each has callbacks of all functions of HIP. The third one has records, too, and retirements of ids.
static rocprofiler_context_id_t contexts[3] = {{0}, {0}, {0}};
static rocprofiler_buffer_id_t buffer = {0};
static std::atomic<int> entered[3], exited[3];
// The same of one function of HSA, whose callback throws when a call has ended.
static rocprofiler_context_id_t of_hsa = {0};
// What is done in a callback of a context.
static std::function<void(const Record&, rocprofiler_user_data_t*)> act[3];
// By correlation id: external ids of records.
static std::map<uint64_t, uint64_t> recorded;
// How often ids were retired.
static std::map<uint64_t, int> retired;

static void tell(Record record, rocprofiler_user_data_t* kept, void* data) {
  const size_t at = *static_cast<size_t*>(data);
  CHECK(record.context_id.handle == contexts[at].handle && record.kind == HIP && record.correlation_id.internal != 0);
  (record.phase == ENTER ? entered : exited)[at]++;
  if (act[at]) act[at](record, kept);
}

static void throw_at_the_end(Record record, rocprofiler_user_data_t*, void*) {
  CHECK(record.context_id.handle == of_hsa.handle);
  if (record.phase != ENTER) throw std::runtime_error("at the end");
}

static void take(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count,
                 void*, uint64_t) {
  for (size_t at = 0; at < count; at++) {
    if (headers[at]->kind == ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT) {
      auto* end = static_cast<rocprofiler_buffer_tracing_correlation_id_retirement_record_t*>(headers[at]->payload);
      retired[end->internal_correlation_id]++;
      continue;
    }
    auto* record = static_cast<rocprofiler_buffer_tracing_hip_api_record_t*>(headers[at]->payload);
    recorded[record->correlation_id.internal] = record->correlation_id.external.value;
  }
}

static int initialize(rocprofiler_client_finalize_t, void*) {
  static size_t numbers[3] = {0, 1, 2};
  for (size_t at = 0; at < 3; at++) {
    DONE(rocprofiler_create_context(&contexts[at]));
    DONE(rocprofiler_configure_callback_tracing_service(contexts[at], HIP, nullptr, 0, tell, &numbers[at]));
  }
  DONE(rocprofiler_create_buffer(contexts[2], 65536, 65536, ROCPROFILER_BUFFER_POLICY_LOSSLESS, take, nullptr, &buffer));
  for (auto kind : {ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT}) {
    DONE(rocprofiler_configure_buffer_tracing_service(contexts[2], kind, nullptr, 0, buffer));
  }
  const rocprofiler_tracing_operation_t one = ROCPROFILER_HSA_CORE_API_ID_hsa_system_get_info;
  DONE(rocprofiler_create_context(&of_hsa));
  DONE(rocprofiler_configure_callback_tracing_service(of_hsa, ROCPROFILER_CALLBACK_TRACING_HSA_CORE_API, &one, 1,
                                                      throw_at_the_end, nullptr));
  DONE(rocprofiler_configure_buffer_tracing_service(of_hsa, ROCPROFILER_BUFFER_TRACING_HSA_CORE_API, &one, 1, buffer));
  DONE(rocprofiler_configure_buffer_tracing_service(of_hsa, ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT, nullptr, 0,
                                                    buffer));
  return 0;
}

static rocprofiler_tool_configure_result_t* configure(uint32_t, const char*, uint32_t, rocprofiler_client_id_t* id) {
  id->name = "callbacks";
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, nullptr, nullptr};
  return &result;
}

static void call() {
  int device = -1;
  CHECK(hipGetDevice(&device) == hipSuccess && device == 0);
}

// From zero.
static void expect(size_t at, int entries, int exits) {
  CHECK(entered[at].exchange(0) == entries && exited[at].exchange(0) == exits);
}

static void each_context_is_told() {
  call();
  expect(0, 0, 0);
  DONE(rocprofiler_start_context(contexts[0]));
  call();
  DONE(rocprofiler_start_context(contexts[1]));
  call();
  DONE(rocprofiler_stop_context(contexts[0]));
  call();
  expect(0, 2, 2);
  expect(1, 2, 2);
  // A context that is stopped in the middle of a call is told of its end.
  DONE(rocprofiler_start_context(contexts[0]));
  act[1] = [](const Record& record, rocprofiler_user_data_t*) {
    if (record.phase == ENTER) DONE(rocprofiler_stop_context(contexts[0]));
  };
  call();
  act[1] = nullptr;
  call();
  DONE(rocprofiler_stop_context(contexts[1]));
  CHECK(entered[0] == 1);
  entered[0] = exited[0] = 0;
  expect(1, 2, 2);
}

// The types and the names of the headers.
static void arguments_are_those_of_the_call() {
  static void* address = nullptr;
  static const size_t bytes = 12345;
  static int seen = 0;
  act[0] = [](const Record& record, rocprofiler_user_data_t* kept) {
    auto* data = static_cast<Data*>(record.payload);
    CHECK(data->size == sizeof(Data));
    if (record.operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipMalloc) {
      CHECK(data->args.hipMalloc.ptr == &address && data->args.hipMalloc.size == bytes);
      CHECK(record.phase == ENTER ? address == nullptr : *data->args.hipMalloc.ptr != nullptr);
      if (record.phase == ENTER) kept->ptr = &address;
      CHECK(kept->ptr == &address);
      seen++;
    } else if (record.operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipMemset) {
      CHECK(data->args.hipMemset.dst == address && data->args.hipMemset.value == -3);
      CHECK(data->args.hipMemset.sizeBytes == bytes);
      seen++;
    } else if (record.operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipFree) {
      CHECK(data->args.hipFree.ptr == address);
      seen++;
    }
  };
  DONE(rocprofiler_start_context(contexts[0]));
  CHECK(hipMalloc(&address, bytes) == hipSuccess);
  CHECK(hipMemset(address, -3, bytes) == hipSuccess);
  CHECK(hipFree(address) == hipSuccess);
  DONE(rocprofiler_stop_context(contexts[0]));
  CHECK(seen == 6);
  act[0] = nullptr;
  expect(0, 3, 3);
}

// What the functions return, since there are tables that calls pass through.
static void results_are_those_of_the_call() {
#if HIP_VERSION >= 60000000
  static std::vector<Data> ended;
  static uint32_t last = 0;
  act[0] = [](const Record& record, rocprofiler_user_data_t*) {
    if (record.phase != ENTER) ended.push_back(*static_cast<Data*>(record.payload));
    last = record.operation;
  };
  DONE(rocprofiler_start_context(contexts[0]));
  CHECK(hipSetDevice(99) == hipErrorInvalidDevice);
  call();
  const char* name = hipGetErrorName(hipErrorInvalidDevice);
  const hipChannelFormatDesc format = hipCreateChannelDesc(8, 16, 32, 0, hipChannelFormatKindFloat);
  // For which the runtime has the id of another one.
  CHECK(hipStreamQuery_spt(nullptr) == hipSuccess);
  DONE(rocprofiler_stop_context(contexts[0]));
  act[0] = nullptr;
  expect(0, 5, 5);
  CHECK(last == ROCPROFILER_HIP_RUNTIME_API_ID_hipStreamQuery_spt);
  CHECK(ended[0].retval.hipError_t_retval == hipErrorInvalidDevice && ended[0].args.hipSetDevice.deviceId == 99);
  CHECK(ended[1].retval.hipError_t_retval == hipSuccess);
  CHECK(ended[2].retval.const_charp_retval == name && ended[2].args.hipGetErrorName.hip_error == hipErrorInvalidDevice);
  CHECK(memcmp(&ended[3].retval.hipChannelFormatDesc_retval, &format, sizeof format) == 0 && format.z == 32);
  CHECK(ended[3].args.hipCreateChannelDesc.y == 16 && ended[3].args.hipCreateChannelDesc.f == hipChannelFormatKindFloat);
#endif
}

// An id that is given in ENTER counts for the call.
static void external_ids_are_those_of_the_callback() {
  static uint64_t id = 0, at_enter = 0, at_exit = 0;
  rocprofiler_thread_id_t thread = 0;
  DONE(rocprofiler_get_thread_id(&thread));
  act[2] = [thread](const Record& record, rocprofiler_user_data_t*) {
    CHECK(record.thread_id == thread);
    rocprofiler_user_data_t external;
    if (record.phase == ENTER) {
      id = record.correlation_id.internal;
      at_enter = record.correlation_id.external.value;
      external.value = 1000 + at_enter;
      DONE(rocprofiler_push_external_correlation_id(contexts[2], thread, external));
    } else {
      CHECK(id == record.correlation_id.internal);
      at_exit = record.correlation_id.external.value;
      DONE(rocprofiler_pop_external_correlation_id(contexts[2], thread, &external));
    }
  };
  rocprofiler_user_data_t external;
  external.value = 5;
  DONE(rocprofiler_push_external_correlation_id(contexts[2], thread, external));
  DONE(rocprofiler_start_context(contexts[2]));
  call();
  DONE(rocprofiler_stop_context(contexts[2]));
  DONE(rocprofiler_pop_external_correlation_id(contexts[2], thread, &external));
  CHECK(external.value == 5 && at_enter == 5 && at_exit == 1005);
  DONE(rocprofiler_flush_buffer(buffer));
  CHECK(recorded.size() == 1 && recorded.count(id) == 1 && recorded[id] == 1005 && retired[id] == 1);
  act[2] = nullptr;
  expect(2, 1, 1);
}

// What a callback throws reaches the caller, and the call is neither made nor recorded. Its id is retired.
static void callbacks_may_throw() {
  static std::vector<uint64_t> refused;
  recorded.clear();
  act[2] = [](const Record& record, rocprofiler_user_data_t*) {
    if (record.phase != ENTER) return;
    refused.push_back(record.correlation_id.internal);
    throw std::runtime_error("refused");
  };
  DONE(rocprofiler_start_context(contexts[2]));
  for (int times = 1; times <= 3; times++) {
    bool caught = false;
    int device = -1;
    try {
      hipGetDevice(&device);
    } catch (const std::runtime_error&) {
      caught = true;
    }
    CHECK(caught && device == -1);
  }
  act[2] = nullptr;
  expect(2, 3, 0);
  call();
  DONE(rocprofiler_stop_context(contexts[2]));
  expect(2, 1, 1);
  DONE(rocprofiler_flush_buffer(buffer));
  CHECK(recorded.size() == 1 && refused.size() == 3);
  for (uint64_t id : refused) CHECK(recorded.count(id) == 0 && retired[id] == 1);
  CHECK(retired[recorded.begin()->first] == 1);
}

// What it throws at the end of a call of HSA reaches the caller, too. The call was made, and is recorded.
static void callbacks_may_throw_at_the_end() {
  recorded.clear();
  DONE(rocprofiler_start_context(of_hsa));
  bool caught = false;
  uint16_t major = 0;
  try {
    hsa_system_get_info(HSA_SYSTEM_INFO_VERSION_MAJOR, &major);
  } catch (const std::runtime_error&) {
    caught = true;
  }
  DONE(rocprofiler_stop_context(of_hsa));
  DONE(rocprofiler_flush_buffer(buffer));
  CHECK(caught && major == 1);
  CHECK(recorded.size() == 1 && retired[recorded.begin()->first] == 1);
}

// A callback that ends its thread.
static void callbacks_may_end_their_thread() {
  act[0] = [](const Record& record, rocprofiler_user_data_t*) {
    if (record.phase == ENTER) pthread_exit(nullptr);
  };
  DONE(rocprofiler_start_context(contexts[0]));
  std::thread(call).join();
  act[0] = nullptr;
  expect(0, 1, 0);
  call();
  DONE(rocprofiler_stop_context(contexts[0]));
  expect(0, 1, 1);
}

// Calls of a callback call none.
static void callbacks_may_call() {
  act[0] = [](const Record&, rocprofiler_user_data_t*) { call(); };
  DONE(rocprofiler_start_context(contexts[0]));
  DONE(rocprofiler_start_context(contexts[1]));
  call();
  act[0] = nullptr;
  expect(0, 1, 1);
  expect(1, 1, 1);
  DONE(rocprofiler_stop_context(contexts[0]));
  DONE(rocprofiler_stop_context(contexts[1]));
}

// Contexts come and go while threads call.
static void threads_call() {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) {
    threads.emplace_back([&over] {
      while (!over) call();
    });
  }
  for (int round = 0; round < 50; round++) {
    for (auto& context : contexts) DONE(rocprofiler_start_context(context));
    const int before = entered[1];
    while (entered[1] < before + 10) std::this_thread::yield();
    for (auto& context : contexts) DONE(rocprofiler_stop_context(context));
  }
  over = true;
  for (auto& thread : threads) thread.join();
  for (int at = 0; at < 3; at++) CHECK(entered[at] >= 500 && entered[at] >= exited[at]);
}

int main() {
  DONE(rocprofiler_force_configure(configure));
  each_context_is_told();
  arguments_are_those_of_the_call();
  results_are_those_of_the_call();
  external_ids_are_those_of_the_callback();
  callbacks_may_throw();
  callbacks_may_throw_at_the_end();
  callbacks_may_end_their_thread();
  callbacks_may_call();
  threads_call();
  return 0;
}
