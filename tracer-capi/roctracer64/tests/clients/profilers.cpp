// Clients in C++11 that use roctracer as two profilers do. WORK_MODULES is the directory of the kernels.
//
// As PyTorch's Kineto: callbacks of all of HIP's functions, whose rows are kept by correlation id; work of GPUs in a pool
// of its own; registered once, then started and stopped many times, with a flush at each stop.
//
// As HPCToolkit: callbacks of some functions, which push an external id at the begin and pop it at the end; records of
// calls, to get the id back, and of work in the default pool.

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "roctracer_ext.h"
#include "roctracer_hip.h"

#include "check.h"

#define REQUIRE(call) CHECK((call) == ROCTRACER_STATUS_SUCCESS)
#define HIP(call) CHECK((call) == hipSuccess)

static const activity_domain_t API = ACTIVITY_DOMAIN_HIP_API;
static const activity_domain_t OPS = ACTIVITY_DOMAIN_HIP_OPS;
static const int THREADS = 4, LAUNCHES = 25;

static hipFunction_t kernel;

// Launches, and copies there and back, on each of some threads.
static void work() {
  std::vector<std::thread> threads;
  for (int i = 0; i < THREADS; i++) threads.emplace_back([] {
    hipStream_t stream;
    unsigned* memory;
    unsigned host = 3, count = 1, factor = 2;
    HIP(hipStreamCreate(&stream));
    HIP(hipMalloc(reinterpret_cast<void**>(&memory), 4096));
    HIP(hipMemcpy(memory, &host, sizeof host, hipMemcpyHostToDevice));
    void* arguments[] = {&memory, &count, &factor};
    for (int launch = 0; launch < LAUNCHES; launch++) {
      HIP(hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
    }
    HIP(hipStreamSynchronize(stream));
    HIP(hipMemcpy(&host, memory, sizeof host, hipMemcpyDeviceToHost));
    HIP(hipFree(memory));
    HIP(hipStreamDestroy(stream));
  });
  for (auto& thread : threads) thread.join();
}

static std::mutex lock;
static std::map<uint64_t, uint32_t> rows;         // operations of calls, by correlation id
static std::vector<activity_record_t> records;
static std::map<uint64_t, uint64_t> external_ids;  // by correlation id

static void keep(const char* begin, const char* end, void*) {
  std::lock_guard<std::mutex> guard(lock);
  auto record = reinterpret_cast<const activity_record_t*>(begin);
  for (; record < reinterpret_cast<const activity_record_t*>(end); roctracer_next_record(record, &record)) {
    if (record->domain == ACTIVITY_DOMAIN_EXT_API) {
      CHECK(record->op == ACTIVITY_EXT_OP_EXTERN_ID);
      CHECK(external_ids.insert({record->correlation_id, record->external_id}).second);
    } else {
      records.push_back(*record);
    }
  }
}

// Each launch has its one kernel, each copy at least one of the GPU's, and nothing has no call.
static void expect_work_of_calls(int times) {
  std::lock_guard<std::mutex> guard(lock);
  std::map<uint64_t, int> kernels, copies;
  for (auto& record : records) {
    if (record.domain != OPS) continue;
    CHECK(record.begin_ns > 0 && record.begin_ns < record.end_ns);
    CHECK(rows.count(record.correlation_id) == 1);
    if (record.op == HIP_OP_ID_DISPATCH) kernels[record.correlation_id]++;
    if (record.op == HIP_OP_ID_COPY) copies[record.correlation_id]++;
  }
  int launches = 0, copying = 0;
  for (auto& row : rows) {
    if (row.second == HIP_API_ID_hipModuleLaunchKernel) {
      CHECK(kernels[row.first] == 1);
      launches++;
    } else if (row.second == HIP_API_ID_hipMemcpy) {
      CHECK(copies[row.first] >= 1);
      copying++;
    }
  }
  CHECK(launches == times * THREADS * LAUNCHES && copying == times * THREADS * 2);
  CHECK(static_cast<int>(kernels.size()) == launches);
}

static void on_call(uint32_t domain, uint32_t op, const void* data, void*) {
  auto api = static_cast<const hip_api_data_t*>(data);
  CHECK(domain == API);
  if (api->phase == ACTIVITY_API_PHASE_EXIT) {
    std::lock_guard<std::mutex> guard(lock);
    CHECK(rows.insert({api->correlation_id, op}).second);
  }
}

static void as_kineto() {
  roctracer_pool_t* pool = nullptr;
  roctracer_properties_t properties = {};
  properties.buffer_size = 0x4000;
  properties.buffer_callback_fun = keep;
  REQUIRE(roctracer_set_properties(API, nullptr));
  for (int cycle = 0; cycle < 10; cycle++) {
    if (pool == nullptr) {
      REQUIRE(roctracer_enable_domain_callback(API, on_call, nullptr));
      for (const char* unwanted : {"hipGetDevice", "hipSetDevice", "hipGetLastError"}) {
        uint32_t op = 0;
        REQUIRE(roctracer_op_code(API, unwanted, &op, nullptr));
        REQUIRE(roctracer_disable_op_callback(API, op));
      }
      REQUIRE(roctracer_open_pool_expl(&properties, &pool));
      REQUIRE(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HCC_OPS, pool));
    } else {
      roctracer_start();
    }
    work();
    roctracer_stop();
    REQUIRE(roctracer_flush_activity_expl(pool));
    expect_work_of_calls(1);
    rows.clear();
    records.clear();
    // Nobody is told of that.
    work();
    REQUIRE(roctracer_flush_activity_expl(pool));
    CHECK(rows.empty() && records.empty());
  }
  roctracer_start();
  REQUIRE(roctracer_disable_domain_callback(API));
  REQUIRE(roctracer_close_pool_expl(pool));
  CHECK(rows.empty());
}

static const uint64_t FIRST_ID = 1ull << 40;

static void with_external_id(uint32_t, uint32_t op, const void* data, void*) {
  auto api = static_cast<const hip_api_data_t*>(data);
  const uint64_t id = FIRST_ID + api->correlation_id;
  if (api->phase == ACTIVITY_API_PHASE_ENTER) {
    REQUIRE(roctracer_activity_push_external_correlation_id(id));
    std::lock_guard<std::mutex> guard(lock);
    CHECK(rows.insert({api->correlation_id, op}).second);
  } else {
    // Popped after the record of the call would be written: HPCToolkit takes the call's id from the begin.
    uint64_t popped = 0;
    REQUIRE(roctracer_activity_pop_external_correlation_id(&popped));
    CHECK(popped == id);
  }
}

static void as_hpctoolkit() {
  roctracer_properties_t properties = {};
  properties.buffer_size = 0x1000;
  properties.buffer_callback_fun = keep;
  REQUIRE(roctracer_open_pool(&properties));
  for (uint32_t op : {HIP_API_ID_hipModuleLaunchKernel, HIP_API_ID_hipMemcpy}) {
    REQUIRE(roctracer_enable_op_callback(API, op, with_external_id, nullptr));
  }
  // A region of this thread's, which has the calls that it makes itself.
  REQUIRE(roctracer_enable_op_activity(API, HIP_API_ID_hipDeviceSynchronize));
  REQUIRE(roctracer_enable_domain_activity(OPS));
  REQUIRE(roctracer_activity_push_external_correlation_id(7));
  HIP(hipDeviceSynchronize());
  uint64_t popped = 0;
  REQUIRE(roctracer_activity_pop_external_correlation_id(&popped));
  CHECK(popped == 7);
  work();
  REQUIRE(roctracer_flush_activity());
  // What is neither a launch nor a copy has no call: these alone are traced.
  records.erase(std::remove_if(records.begin(), records.end(), [](const activity_record_t& record) {
    return record.domain == OPS && record.correlation_id == 0;
  }), records.end());
  expect_work_of_calls(1);
  CHECK(external_ids.size() == 1 && external_ids.begin()->second == 7);
  int synchronized = 0;
  for (auto& record : records) {
    if (record.domain != API) continue;
    CHECK(record.op == HIP_API_ID_hipDeviceSynchronize);
    CHECK(external_ids.count(record.correlation_id) == 1);
    synchronized++;
  }
  CHECK(synchronized == 1);
  REQUIRE(roctracer_close_pool());
}

int main() {
  hipModule_t module;
  const std::string path = std::string(getenv("WORK_MODULES")) + "/module_a.co";
  HIP(hipModuleLoad(&module, path.c_str()));
  HIP(hipModuleGetFunction(&kernel, module, "module_scale"));
  as_kineto();
  as_hpctoolkit();
  return 0;
}
