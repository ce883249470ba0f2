// A client of HIP calls in C++11 whose callbacks do as they like.

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "roctracer_ext.h"
#include "roctracer_hip.h"

#include "check.h"

#define REQUIRE(call) CHECK((call) == ROCTRACER_STATUS_SUCCESS)

static const activity_domain_t HIP = ACTIVITY_DOMAIN_HIP_API;

static std::atomic<int> entered, exited;
static std::atomic<int> delivered;

static bool enters(const void* data) {
  return static_cast<const hip_api_data_t*>(data)->phase == ACTIVITY_API_PHASE_ENTER;
}

static void count(uint32_t, uint32_t, const void* data, void*) { (enters(data) ? entered : exited)++; }

static void call() {
  int device = -1;
  CHECK(hipGetDevice(&device) == hipSuccess && device == 0);
}

// Calls are told of as ever.
static void expect_calls_are_told(int times) {
  entered = exited = 0;
  REQUIRE(roctracer_enable_domain_callback(HIP, count, nullptr));
  for (int i = 0; i < times; i++) call();
  CHECK(entered == times && exited == times);
  REQUIRE(roctracer_disable_domain_callback(HIP));
  call();
  CHECK(entered == times && exited == times);
}

static void disable_itself(uint32_t domain, uint32_t op, const void* data, void* argument) {
  count(domain, op, data, argument);
  if (enters(data)) REQUIRE(roctracer_disable_op_callback(HIP, op));
}

static void replace_itself(uint32_t domain, uint32_t op, const void* data, void* argument) {
  count(domain, op, data, argument);
  REQUIRE(roctracer_enable_op_callback(HIP, op, count, nullptr));
}

static void refuse(uint32_t, uint32_t, const void* data, void*) {
  if (enters(data)) throw std::runtime_error("refused");
}

static void leave(uint32_t, uint32_t, const void* data, void*) {
  if (enters(data)) pthread_exit(nullptr);
}

static void close_pool(uint32_t, uint32_t, const void* data, void*) {
  if (enters(data)) REQUIRE(roctracer_close_pool());
}

static void deliver(const char* begin, const char* end, void*) {
  delivered += static_cast<int>((end - begin) / sizeof(activity_record_t));
}

static void open_pool() {
  roctracer_properties_t properties = {};
  properties.buffer_size = 4096;
  properties.buffer_callback_fun = deliver;
  REQUIRE(roctracer_open_pool(&properties));
  REQUIRE(roctracer_enable_domain_activity(HIP));
}

extern "C" const char* hipGetCmdName(unsigned command);

// Names are HIP's own, where it has one.
static void expect_names() {
  int named = 0;
  for (uint32_t kind = 0; kind < 0x2000; kind++) {
    const std::string name = hipGetCmdName(kind);
    const char* ours = roctracer_op_string(ACTIVITY_DOMAIN_HIP_OPS, 0, kind);
    // "type" or "kind", by release.
    const bool is_unknown = name.find("Unknown command ") == 0;
    CHECK(is_unknown ? ours == nullptr : ours != nullptr && name == ours);
    named += ours != nullptr;
  }
  CHECK(named == 31);
  for (uint32_t op = HIP_API_ID_FIRST; op <= HIP_API_ID_LAST; op++) {
    const std::string name = hipApiName(op);
    const char* ours = roctracer_op_string(HIP, op, 0);
    CHECK(name == "unknown" ? ours == nullptr : ours != nullptr && name == ours);
  }
}

// Calls of destructors, when those of the thread have run.
struct AtExit {
  ~AtExit() { expect_calls_are_told(10); }
};
static AtExit at_exit;
static thread_local AtExit at_thread_exit;

int main() {
  call();
  expect_names();
  (void)&at_thread_exit;
  std::thread([] {
    (void)&at_thread_exit;
    call();
  }).join();
  expect_calls_are_told(100);

  // Who is disabled between begin and end is not told of the end.
  entered = exited = 0;
  REQUIRE(roctracer_enable_domain_callback(HIP, disable_itself, nullptr));
  call();
  call();
  CHECK(entered == 1 && exited == 0);
  // Its successor is.
  REQUIRE(roctracer_enable_domain_callback(HIP, replace_itself, nullptr));
  call();
  CHECK(entered == 2 && exited == 1);
  REQUIRE(roctracer_disable_domain_callback(HIP));

  // What it throws reaches the caller.
  REQUIRE(roctracer_enable_domain_callback(HIP, refuse, nullptr));
  for (int i = 0; i < 3; i++) {
    bool caught = false;
    try {
      call();
    } catch (const std::runtime_error&) {
      caught = true;
    }
    CHECK(caught);
  }
  REQUIRE(roctracer_disable_domain_callback(HIP));
  expect_calls_are_told(100);

  // A thread ends in it.
  REQUIRE(roctracer_enable_domain_callback(HIP, leave, nullptr));
  for (int i = 0; i < 3; i++) std::thread([] {
    call();
    CHECK(false);
  }).join();
  REQUIRE(roctracer_disable_domain_callback(HIP));
  expect_calls_are_told(100);

  // It closes the pool that the call is to be recorded in.
  open_pool();
  call();
  REQUIRE(roctracer_enable_domain_callback(HIP, close_pool, nullptr));
  call();
  CHECK(delivered == 1 && roctracer_default_pool() == nullptr);
  REQUIRE(roctracer_disable_domain_callback(HIP));

  // Threads that end have their records delivered, each once.
  delivered = 0;
  open_pool();
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; i++) threads.emplace_back([] {
    for (int round = 0; round < 200; round++) call();
  });
  for (auto& thread : threads) thread.join();
  REQUIRE(roctracer_flush_activity());
  CHECK(delivered == 64 * 200);

  // While stopped nothing is recorded.
  roctracer_stop();
  call();
  roctracer_start();
  call();
  REQUIRE(roctracer_flush_activity());
  CHECK(delivered == 64 * 200 + 1);

  // A forked child has none of it, and waits for nobody.
  call();
  const pid_t child = fork();
  if (child == 0) {
    const bool right = roctracer_flush_activity() == ROCTRACER_STATUS_SUCCESS &&
                       roctracer_disable_domain_callback(HIP) == ROCTRACER_STATUS_SUCCESS &&
                       roctracer_close_pool() == ROCTRACER_STATUS_SUCCESS;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  REQUIRE(roctracer_close_pool());
  CHECK(delivered == 64 * 200 + 2);
  return 0;
}
