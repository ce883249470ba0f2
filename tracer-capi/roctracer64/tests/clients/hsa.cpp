// A client in C++11 without HIP: callbacks of HSA's functions that throw, disable and replace themselves, close the pool;
// threads that end; a runtime that ends and begins again; a forked child.

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "roctracer_ext.h"
#include "roctracer_hsa.h"

#include "check.h"

#define REQUIRE(call) CHECK((call) == ROCTRACER_STATUS_SUCCESS)
#define HSA(call) CHECK((call) == HSA_STATUS_SUCCESS)

static const activity_domain_t API = ACTIVITY_DOMAIN_HSA_API;
static const uint32_t INFO = HSA_API_ID_hsa_system_get_info;

static std::atomic<int> entered{0}, exited{0}, delivered{0};

// A call, of which the number of the major version is returned.
static uint16_t call() {
  uint16_t major = 0;
  HSA(hsa_system_get_info(HSA_SYSTEM_INFO_VERSION_MAJOR, &major));
  return major;
}

static void count(uint32_t domain, uint32_t op, const void* data, void* argument) {
  auto api = static_cast<const hsa_api_data_t*>(data);
  CHECK(domain == API && op == INFO && argument == &entered);
  CHECK(api->args.hsa_system_get_info.attribute == HSA_SYSTEM_INFO_VERSION_MAJOR);
  if (api->phase == ACTIVITY_API_PHASE_ENTER) {
    CHECK(*static_cast<uint16_t*>(api->args.hsa_system_get_info.value) == 0);
    entered++;
    // Calls none.
    call();
  } else {
    CHECK(api->hsa_status_t_retval == HSA_STATUS_SUCCESS);
    CHECK(*static_cast<uint16_t*>(api->args.hsa_system_get_info.value) == 1);
    exited++;
  }
}

static void enable(activity_rtapi_callback_t callback) {
  REQUIRE(roctracer_enable_op_callback(API, INFO, callback, &entered));
}

static void throw_at_enter(uint32_t, uint32_t, const void* data, void*) {
  if (static_cast<const hsa_api_data_t*>(data)->phase == ACTIVITY_API_PHASE_ENTER) throw std::runtime_error("enter");
  exited++;
}

static void throw_at_exit(uint32_t, uint32_t, const void* data, void*) {
  if (static_cast<const hsa_api_data_t*>(data)->phase == ACTIVITY_API_PHASE_EXIT) throw std::runtime_error("exit");
  entered++;
}

static void disable_itself(uint32_t, uint32_t, const void* data, void*) {
  (static_cast<const hsa_api_data_t*>(data)->phase == ACTIVITY_API_PHASE_ENTER ? entered : exited)++;
  REQUIRE(roctracer_disable_op_callback(API, INFO));
}

static void deliver(const char* begin, const char* end, void*) {
  auto record = reinterpret_cast<const activity_record_t*>(begin);
  for (; record < reinterpret_cast<const activity_record_t*>(end); roctracer_next_record(record, &record)) {
    CHECK(record->domain == API && record->op == INFO && record->begin_ns <= record->end_ns);
    delivered++;
  }
}

static void close_pool(uint32_t, uint32_t, const void*, void*) { REQUIRE(roctracer_close_pool()); }

static void open_pool() {
  roctracer_properties_t properties = {};
  properties.buffer_size = 4096;
  properties.buffer_callback_fun = deliver;
  REQUIRE(roctracer_open_pool(&properties));
  REQUIRE(roctracer_enable_op_activity(API, INFO));
}

static void expect_calls_are_told(int times) {
  entered = exited = 0;
  enable(count);
  for (int i = 0; i < times; i++) CHECK(call() == 1);
  CHECK(entered == times && exited == times);
  REQUIRE(roctracer_disable_op_callback(API, INFO));
  call();
  CHECK(entered == times && exited == times);
}

template <typename Call> static bool throws(Call call) {
  try {
    call();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

static void expect_number(const char* name, uint32_t number) {
  uint32_t op = 0;
  REQUIRE(roctracer_op_code(API, name, &op, nullptr));
  CHECK(op == number);
  CHECK(strcmp(roctracer_op_string(API, number, 0), name) == 0);
}

// Numbers are those of the release that is loaded, whose headers these are.
static void expect_numbers_of_this_release() {
  expect_number("hsa_system_get_info", INFO);
  expect_number("hsa_amd_memory_async_copy", HSA_API_ID_hsa_amd_memory_async_copy);
  expect_number("hsa_amd_memory_pool_get_info", HSA_API_ID_hsa_amd_memory_pool_get_info);
  expect_number("hsa_amd_queue_cu_get_mask", HSA_API_ID_hsa_amd_queue_cu_get_mask);
  expect_number("hsa_ext_image_get_capability", HSA_API_ID_hsa_ext_image_get_capability);
  expect_number("hsa_ext_image_create_with_layout", HSA_API_ID_hsa_ext_image_create_with_layout);
  CHECK(roctracer_op_string(API, HSA_API_ID_DISPATCH - 1, 0));
  CHECK(!roctracer_op_string(API, HSA_API_ID_DISPATCH, 0));
}

#if HSA_AMD_INTERFACE_VERSION_MINOR >= 6
static const uint32_t LATER = HSA_API_ID_hsa_amd_queue_get_info;
static int value;

static void count_later(uint32_t domain, uint32_t op, const void* data, void*) {
  if (op != LATER) return;
  auto api = static_cast<const hsa_api_data_t*>(data);
  CHECK(domain == API && !api->args.hsa_amd_queue_get_info.queue && api->args.hsa_amd_queue_get_info.value == &value);
  CHECK(api->args.hsa_amd_queue_get_info.attribute == HSA_AMD_QUEUE_INFO_AGENT);
  if (api->phase == ACTIVITY_API_PHASE_ENTER) {
    entered++;
  } else {
    CHECK(api->hsa_status_t_retval != HSA_STATUS_SUCCESS);
    exited++;
  }
}

// Functions that came after ROCm 5.2.3 are told, too.
static void expect_later_functions_are_told() {
  entered = exited = 0;
  REQUIRE(roctracer_enable_domain_callback(API, count_later, nullptr));
  hsa_amd_queue_get_info(nullptr, HSA_AMD_QUEUE_INFO_AGENT, &value);
  REQUIRE(roctracer_disable_domain_callback(API));
  hsa_amd_queue_get_info(nullptr, HSA_AMD_QUEUE_INFO_AGENT, &value);
  CHECK(entered == 1 && exited == 1);
}
#else
static void expect_later_functions_are_told() {}
#endif

int main() {
  expect_numbers_of_this_release();
  HSA(hsa_init());
  expect_calls_are_told(100);
  expect_later_functions_are_told();
  std::thread([] { expect_calls_are_told(100); }).join();

  // What it throws reaches the caller. At the begin, the function is not called then.
  entered = exited = 0;
  enable(throw_at_enter);
  for (int i = 0; i < 3; i++) {
    uint16_t major = 0;
    CHECK(throws([&] { hsa_system_get_info(HSA_SYSTEM_INFO_VERSION_MAJOR, &major); }));
    CHECK(major == 0 && exited == 0);
  }
  enable(throw_at_exit);
  for (int i = 0; i < 3; i++) CHECK(throws([] { call(); }));
  CHECK(entered == 3);
  REQUIRE(roctracer_disable_op_callback(API, INFO));
  expect_calls_are_told(10);

  // Who is disabled between begin and end is not told of the end.
  entered = exited = 0;
  enable(disable_itself);
  call();
  call();
  CHECK(entered == 1 && exited == 0);

  // Records, of threads that end, too. Of what was refused there is none.
  open_pool();
  enable(throw_at_enter);
  CHECK(throws([] { call(); }));
  REQUIRE(roctracer_disable_op_callback(API, INFO));
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; i++) threads.emplace_back([] {
    for (int round = 0; round < 100; round++) call();
  });
  for (auto& thread : threads) thread.join();
  roctracer_stop();
  call();
  roctracer_start();
  REQUIRE(roctracer_flush_activity());
  CHECK(delivered == 1600);
  // It closes the pool that the call is to be recorded in.
  enable(close_pool);
  call();
  REQUIRE(roctracer_disable_op_callback(API, INFO));
  CHECK(delivered == 1600 && roctracer_default_pool() == nullptr);

  // A forked child has none of it, and waits for nobody.
  open_pool();
  const pid_t child = fork();
  if (child == 0) {
    call();
    const bool right = roctracer_flush_activity() == ROCTRACER_STATUS_SUCCESS &&
                       roctracer_disable_domain_callback(API) == ROCTRACER_STATUS_SUCCESS &&
                       roctracer_close_pool() == ROCTRACER_STATUS_SUCCESS;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  REQUIRE(roctracer_close_pool());
  CHECK(delivered == 1600);

  // The runtime makes its tables anew when it goes.
  HSA(hsa_shut_down());
  HSA(hsa_init());
  expect_calls_are_told(100);
  HSA(hsa_shut_down());
  return 0;
}
