// A client in C++11 that enables, disables, flushes and closes while GPUs work for it. WORK_MODULES is the directory of
// the kernels: module_scale, and module_shift, which takes longer than anything here.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "roctracer_ext.h"
#include "roctracer_hip.h"

#include "check.h"

#define REQUIRE(call) CHECK((call) == ROCTRACER_STATUS_SUCCESS)
#define HIP(call) CHECK((call) == hipSuccess)

static const activity_domain_t OPS = ACTIVITY_DOMAIN_HIP_OPS;

static hipFunction_t scale, shift;
static unsigned* memory;

static hipFunction_t load(const char* module, const char* kernel) {
  hipModule_t loaded;
  hipFunction_t function;
  const std::string path = std::string(getenv("WORK_MODULES")) + "/" + module;
  HIP(hipModuleLoad(&loaded, path.c_str()));
  HIP(hipModuleGetFunction(&function, loaded, kernel));
  return function;
}

static void launch(hipFunction_t kernel, int times, hipStream_t stream = nullptr) {
  unsigned count = 1, by = 1;
  void* arguments[] = {&memory, &count, &by};
  for (int i = 0; i < times; i++) {
    HIP(hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }
}

// What was delivered to a pool, by what it was.
struct Delivered {
  std::atomic<int> kernels{0}, long_ones{0}, others{0};
  roctracer_pool_t* pool = nullptr;
  // Done in the callback.
  void (*act)(Delivered&) = nullptr;

  roctracer_properties_t properties(size_t records) {
    roctracer_properties_t properties = {};
    properties.buffer_size = records * sizeof(activity_record_t);
    properties.buffer_callback_arg = this;
    properties.buffer_callback_fun = [](const char* begin, const char* end, void* argument) {
      static_cast<Delivered*>(argument)->take(begin, end);
    };
    return properties;
  }

  void open(size_t records) {
    auto of = properties(records);
    REQUIRE(roctracer_open_pool_expl(&of, &pool));
  }

  void take(const char* begin, const char* end) {
    auto record = reinterpret_cast<const activity_record_t*>(begin);
    for (; record < reinterpret_cast<const activity_record_t*>(end); roctracer_next_record(record, &record)) {
      CHECK(record->domain == OPS && record->correlation_id == 0);
      CHECK(record->begin_ns > 0 && record->begin_ns < record->end_ns);
      if (record->op != HIP_OP_ID_DISPATCH) {
        others++;
      } else if (strcmp(record->kernel_name, "module_scale") == 0) {
        kernels++;
      } else {
        CHECK(strcmp(record->kernel_name, "module_shift") == 0);
        long_ones++;
      }
    }
    if (act != nullptr) act(*this);
  }
};

int main() {
  scale = load("module_a.co", "module_scale");
  shift = load("module_b.co", "module_shift");
  HIP(hipMalloc(reinterpret_cast<void**>(&memory), 4096));
  launch(scale, 3);
  HIP(hipDeviceSynchronize());

  // Enabled late, in a program that has a queue: what is under way at a flush is delivered by it.
  Delivered first;
  first.open(10);
  REQUIRE(roctracer_enable_op_activity_expl(OPS, HIP_OP_ID_DISPATCH, first.pool));
  launch(scale, 100);
  REQUIRE(roctracer_flush_activity_expl(first.pool));
  CHECK(first.kernels == 100 && first.others == 0);

  // Not while stopped.
  roctracer_stop();
  launch(scale, 10);
  roctracer_start();
  launch(scale, 5);
  REQUIRE(roctracer_flush_activity_expl(first.pool));
  CHECK(first.kernels == 105);

  // Not while disabled; at once when enabled again, soon after and later.
  for (useconds_t wait : {0, 10000, 300000}) {
    first.kernels = 0;
    REQUIRE(roctracer_disable_op_activity(OPS, HIP_OP_ID_DISPATCH));
    launch(scale, 10);
    usleep(wait);
    launch(scale, 10);
    REQUIRE(roctracer_enable_op_activity_expl(OPS, HIP_OP_ID_DISPATCH, first.pool));
    launch(scale, 7);
    REQUIRE(roctracer_flush_activity_expl(first.pool));
    CHECK(first.kernels == 7 && first.others == 0);
  }

  // Two pools, by operation. HIP fills by a kernel of its own.
  Delivered second;
  second.open(10);
  REQUIRE(roctracer_enable_op_activity_expl(OPS, HIP_OP_ID_COPY, second.pool));
  for (int i = 0; i < 6; i++) HIP(hipMemsetAsync(memory, 1, 4096, nullptr));
  launch(scale, 3);
  REQUIRE(roctracer_flush_activity_expl(second.pool));
  REQUIRE(roctracer_flush_activity_expl(first.pool));
  CHECK(second.others == 6 && second.kernels == 0 && first.kernels == 7 + 3 && first.others == 0);
  unsigned host;
  HIP(hipMemcpy(&host, memory, sizeof host, hipMemcpyDeviceToHost));
  REQUIRE(roctracer_close_pool_expl(second.pool));
  CHECK(second.others == 6 + 1);

  // What is under way when a pool is closed is delivered.
  launch(scale, 50);
  REQUIRE(roctracer_close_pool_expl(first.pool));
  CHECK(first.kernels == 7 + 3 + 50);
  launch(scale, 10);
  HIP(hipDeviceSynchronize());

  // A callback that flushes its own pool and another's.
  Delivered third;
  third.open(5);
  third.act = [](Delivered& delivered) {
    REQUIRE(roctracer_flush_activity_expl(delivered.pool));
    launch(scale, 1);
  };
  REQUIRE(roctracer_enable_op_activity_expl(OPS, HIP_OP_ID_DISPATCH, third.pool));
  launch(scale, 100);
  REQUIRE(roctracer_flush_activity_expl(third.pool));
  CHECK(third.kernels >= 100);
  // That closes it.
  third.act = [](Delivered& delivered) { REQUIRE(roctracer_close_pool_expl(delivered.pool)); };
  launch(scale, 100);
  HIP(hipDeviceSynchronize());
  REQUIRE(roctracer_close_pool_expl(third.pool));

  // Threads with streams of their own, and somebody who flushes all the time.
  Delivered fourth;
  fourth.open(64);
  REQUIRE(roctracer_enable_op_activity_expl(OPS, HIP_OP_ID_DISPATCH, fourth.pool));
  std::atomic<bool> done{false};
  std::thread flushes([&] {
    while (!done) REQUIRE(roctracer_flush_activity_expl(fourth.pool));
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) threads.emplace_back([] {
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (int round = 0; round < 10; round++) {
      launch(scale, 50, stream);
      HIP(hipStreamSynchronize(stream));
    }
    HIP(hipStreamDestroy(stream));
  });
  for (auto& thread : threads) thread.join();
  done = true;
  flushes.join();
  REQUIRE(roctracer_flush_activity_expl(fourth.pool));
  CHECK(fourth.kernels == 8 * 500);

  // A forked child has none of it, and waits for nobody.
  launch(scale, 10);
  const pid_t child = fork();
  if (child == 0) {
    const bool right = roctracer_flush_activity_expl(fourth.pool) == ROCTRACER_STATUS_SUCCESS &&
                       roctracer_disable_domain_activity(OPS) == ROCTRACER_STATUS_SUCCESS &&
                       roctracer_close_pool_expl(fourth.pool) == ROCTRACER_STATUS_SUCCESS;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  REQUIRE(roctracer_flush_activity_expl(fourth.pool));
  CHECK(fourth.kernels == 8 * 500 + 10);

  // Who flushes does not wait for a kernel that does not end.
  launch(shift, 1);
  launch(scale, 1);
  REQUIRE(roctracer_flush_activity_expl(fourth.pool));
  CHECK(hipStreamQuery(nullptr) == hipErrorNotReady);
  CHECK(fourth.long_ones == 0 && fourth.kernels == 8 * 500 + 10);
  // Nor for its end.
  _exit(0);
}
