// A client that is loaded into a program: enables what WATCH says for all functions of HIP, checks what it is told,
// and writes to WATCH_OUT at the end how often each was called, and what was wrong.
//   callbacks, activities: one of them
//   both: and whether they belong together; the thread that starts the program has an external id
//   nested: both, and callbacks call HIP themselves
//   changing: callbacks, arguments and pools are exchanged all the time
//   gpu: records of calls and of what GPUs do for them; hsa: of the latter alone, as HSA knows it
//   tool: as hsa_calls, enabled when the runtime loads the client as a tool
//   gpu_late: as gpu, from when the file WATCH_GO is there; it is removed then
//   hsa_calls: callbacks and records of HSA's functions, and what GPUs do for them

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <sys/syscall.h>

#include "roctracer_ext.h"
#include "roctracer_hip.h"
#include "roctracer_hsa.h"

namespace {

const uint64_t EXTERNAL_ID = 0x123456789abcdef0;
const int OPERATIONS = HIP_API_ID_LAST + 1;

std::mutex lock;
std::set<std::string> wrong;

void check(bool right, const char* what) {
  if (right) return;
  std::lock_guard<std::mutex> guard(lock);
  wrong.insert(what);
}

std::string mode;
uint32_t main_thread;
std::atomic<uint64_t> entered[OPERATIONS], exited[OPERATIONS];
std::atomic<uint64_t> own_calls, started, stopped;
std::map<std::string, uint64_t> launches;
std::map<uint64_t, std::pair<uint32_t, uint32_t>> told;  // by correlation id: operation and thread
std::vector<activity_record_t> records;
std::vector<std::pair<activity_record_t, std::string>> work;  // of GPUs, with the name of the kernel or the size

uint32_t thread_id() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

struct Open {
  uint32_t op;
  const hip_api_data_t* data;
};
thread_local std::vector<Open> calls;

void on_call(uint32_t domain, uint32_t op, const void* data, void* argument) {
  auto api = static_cast<const hip_api_data_t*>(data);
  check(domain == ACTIVITY_DOMAIN_HIP_API, "domain");
  check(op > 0 && op < OPERATIONS, "operation");
  check(argument == &records, "argument");
  check(api->correlation_id != 0, "a correlation id");
#if HIP_VERSION >= 50400000
  const bool enters = api->phase == ACTIVITY_API_PHASE_ENTER;
  check(*api->phase_data == (enters ? 0 : api->correlation_id + 1), "phase data");
  *api->phase_data = api->correlation_id + 1;
#endif
  if (api->phase == ACTIVITY_API_PHASE_ENTER) {
    entered[op]++;
    calls.push_back({op, api});
    {
      std::lock_guard<std::mutex> guard(lock);
      if (!told.insert({api->correlation_id, {op, thread_id()}}).second) wrong.insert("an id twice");
      if (op == HIP_API_ID_hipLaunchKernel) {
        auto& arguments = api->args.hipLaunchKernel;
        launches[hipKernelNameRefByPtr(arguments.function_address, arguments.stream)]++;
      }
      if (op == HIP_API_ID_hipMalloc && api->args.hipMalloc.size == 0) wrong.insert("arguments");
    }
    if (mode == "nested" && op == HIP_API_ID_hipLaunchKernel) {
      int device = -1;
      for (int i = 0; i < 2; i++) {
        check(hipGetDevice(&device) == hipSuccess && device == 0, "HIP in a callback");
        own_calls++;
      }
    }
  } else {
    exited[op]++;
    check(api->phase == ACTIVITY_API_PHASE_EXIT, "phase");
    check(!calls.empty() && calls.back().op == op && calls.back().data == api, "the call that it entered");
    if (!calls.empty()) calls.pop_back();
    if (op == HIP_API_ID_hipMalloc) check(*api->args.hipMalloc.ptr != nullptr, "a result");
  }
}

std::atomic<uint64_t> hsa_entered[HSA_API_ID_NUMBER], hsa_exited[HSA_API_ID_NUMBER];
std::map<uint64_t, uint32_t> hsa_calls;  // operations by correlation id, of records
thread_local std::vector<std::pair<uint32_t, const hsa_api_data_t*>> open_hsa_calls;
std::set<uint64_t> of_the_runtime;  // correlation ids

void on_hsa_call(uint32_t domain, uint32_t op, const void* data, void* argument) {
  auto api = static_cast<const hsa_api_data_t*>(data);
  check(domain == ACTIVITY_DOMAIN_HSA_API && op < HSA_API_ID_NUMBER && argument == &records, "of HSA");
  check(api->correlation_id != 0, "a correlation id of HSA's");
  // From ROCm 6 on it copies code so, and waits for that.
  if (!open_hsa_calls.empty() && open_hsa_calls.back().first == HSA_API_ID_hsa_executable_freeze && api != open_hsa_calls.back().second) {
    std::lock_guard<std::mutex> guard(lock);
    of_the_runtime.insert(api->correlation_id);
    return;
  }
  if (api->phase == ACTIVITY_API_PHASE_ENTER) {
    hsa_entered[op]++;
    check(*api->phase_data == 0, "phase data at the begin");
    *api->phase_data = api->correlation_id + 1;
    open_hsa_calls.push_back({op, api});
    auto size = api->args.hsa_queue_create.size;
    if (op == HSA_API_ID_hsa_queue_create) check(size != 0 && (size & (size - 1)) == 0, "the size of a queue");
    // Of our own, which calls none.
    if (op == HSA_API_ID_hsa_queue_create) hsa_iterate_agents([](hsa_agent_t, void*) { return HSA_STATUS_SUCCESS; }, nullptr);
  } else {
    hsa_exited[op]++;
    check(*api->phase_data == api->correlation_id + 1, "phase data at the end");
    check(!open_hsa_calls.empty() && open_hsa_calls.back() == std::make_pair(op, api), "the call of HSA that it entered");
    if (!open_hsa_calls.empty()) open_hsa_calls.pop_back();
    if (op == HSA_API_ID_hsa_queue_create && api->hsa_status_t_retval == HSA_STATUS_SUCCESS) {
      own_calls++;
      check(*api->args.hsa_queue_create.queue != nullptr, "a queue");
    }
  }
}

std::atomic<uint64_t> allocated, freed, devices, loaded, unloaded;

void on_event(uint32_t domain, uint32_t op, const void* data, void* argument) {
  auto event = static_cast<const hsa_evt_data_t*>(data);
  check(domain == ACTIVITY_DOMAIN_HSA_EVT && argument == &records, "an event");
  if (op == HSA_EVT_ID_ALLOCATE) {
    if (event->allocate.size != 0) {
      check(event->allocate.ptr != nullptr, "memory");
      check(event->allocate.segment == HSA_AMD_SEGMENT_GLOBAL, "a segment");
    }
    (event->allocate.size != 0 ? allocated : freed)++;
  } else if (op == HSA_EVT_ID_DEVICE) {
    check(event->device.agent.handle != 0 && event->device.ptr != nullptr, "a device");
    check(event->device.type == HSA_DEVICE_TYPE_CPU || event->device.type == HSA_DEVICE_TYPE_GPU, "a kind of device");
    devices++;
  } else if (op == HSA_EVT_ID_CODEOBJ) {
    auto& object = event->codeobj;
    check(std::string(object.uri).size() == object.uri_length && object.uri_length > 7, "a URI");
    check(object.load_base != 0 && object.load_size != 0, "where it is loaded");
    (object.unload ? unloaded : loaded)++;
    own_calls++;
    hsa_iterate_agents([](hsa_agent_t, void*) { return HSA_STATUS_SUCCESS; }, nullptr);
  } else {
    check(false, "an event that nobody tells");
  }
}

void on_records(const char* begin, const char* end, void* argument) {
  check(argument == &records, "argument");
  auto record = reinterpret_cast<const activity_record_t*>(begin);
  while (record < reinterpret_cast<const activity_record_t*>(end)) {
    const bool is_work = record->domain == ACTIVITY_DOMAIN_HIP_OPS || record->domain == ACTIVITY_DOMAIN_HSA_OPS;
    if (record->domain == ACTIVITY_DOMAIN_HSA_API) {
      check(record->begin_ns > 0 && record->begin_ns <= record->end_ns && record->kind == 0, "a record of HSA's");
      check(record->process_id == static_cast<uint32_t>(getpid()) && record->thread_id != 0, "whose record it is");
      check(hsa_calls.insert({record->correlation_id, record->op}).second, "an id of HSA's twice");
    } else if (!is_work) {
      records.push_back(*record);
    }
    const bool is_kernel = is_work && record->op == HIP_OP_ID_DISPATCH;
    if (is_kernel) check(record->kernel_name != nullptr && *record->kernel_name != 0, "a kernel's name");
    if (is_work) {
      work.push_back({*record, is_kernel && record->kernel_name ? record->kernel_name : std::to_string(record->bytes)});
    }
    roctracer_next_record(record, &record);
  }
}

void require(roctracer_status_t status) {
  if (status != ROCTRACER_STATUS_SUCCESS) check(false, roctracer_error_string());
}

// Callbacks that must not be called with each other's argument.
template <int N> void numbered(uint32_t, uint32_t, const void*, void* argument) {
  check(reinterpret_cast<uintptr_t>(argument) % 4 == N, "an argument of another's");
  started++;
}
void discard(const char* begin, const char* end, void*) { stopped += (end - begin) / sizeof(activity_record_t); }

void change(const std::atomic<bool>& done) {
  const activity_rtapi_callback_t functions[] = {numbered<0>, numbered<1>, numbered<2>, numbered<3>};
  roctracer_pool_t* pool = nullptr;
  for (uintptr_t round = 0; !done; round++) {
    auto argument = reinterpret_cast<void*>(round);
    require(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_HIP_API, functions[round % 4], argument));
    roctracer_pool_t* last = pool;
    roctracer_properties_t properties = {};
    properties.buffer_size = 4096;
    properties.buffer_callback_fun = discard;
    require(roctracer_open_pool_expl(&properties, &pool));
    require(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HIP_API, pool));
    if (last != nullptr) require(roctracer_close_pool_expl(last));
    if (round % 8 == 7) require(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_HIP_API));
    if (round % 8 == 3) {
      roctracer_stop();
      roctracer_start();
    }
  }
  require(roctracer_close_pool_expl(pool));
}

struct Watcher {
  std::atomic<bool> done{false};
  std::thread changer;

  Watcher() {
    const char* watch = getenv("WATCH");
    mode = watch != nullptr ? watch : "";
    main_thread = thread_id();
    if (mode == "tool") return;
    if (mode == "gpu_late") {
      changer = std::thread([this] {
        const char* go = getenv("WATCH_GO");
        while (!done && access(go, F_OK) != 0) usleep(1000);
        if (done) return;
        enable();
        unlink(go);
      });
      return;
    }
    if (mode == "changing") {
      changer = std::thread([this] { change(done); });
      return;
    }
    enable();
  }

  void enable() {
    const bool of_gpus = mode == "gpu" || mode == "gpu_late", of_hsa_calls = mode == "hsa_calls" || mode == "tool";
    if (mode != "callbacks") {
      roctracer_properties_t properties = {};
      properties.buffer_size = 64 * 1024;
      properties.buffer_callback_fun = on_records;
      properties.buffer_callback_arg = &records;
      require(roctracer_open_pool(&properties));
      const bool of_hsa = mode == "hsa" || of_hsa_calls;
      if (!of_hsa) require(roctracer_enable_domain_activity(ACTIVITY_DOMAIN_HIP_API));
      if (of_hsa_calls) {
        require(roctracer_enable_domain_activity(ACTIVITY_DOMAIN_HSA_API));
        require(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_HSA_API, on_hsa_call, &records));
        require(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_HSA_EVT, on_event, &records));
      }
      if (of_gpus) require(roctracer_enable_domain_activity(ACTIVITY_DOMAIN_HIP_OPS));
      if (of_hsa) require(roctracer_enable_domain_activity(ACTIVITY_DOMAIN_HSA_OPS));
    }
    if (mode != "activities" && !of_gpus && mode != "hsa" && !of_hsa_calls) {
      require(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_HIP_API, on_call, &records));
    }
    if (mode == "both") require(roctracer_activity_push_external_correlation_id(EXTERNAL_ID));
  }

  ~Watcher() {
    done = true;
    if (changer.joinable()) changer.join();
    require(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_HIP_API));
    require(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_HSA_API));
    require(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_HSA_EVT));
    require(roctracer_close_pool());
    std::ofstream out(getenv("WATCH_OUT"));
    std::map<uint32_t, uint64_t> recorded;
    std::set<uint64_t> ids;
    const activity_record_t* before = nullptr;
    for (auto& record : records) {
      if (record.domain == ACTIVITY_DOMAIN_EXT_API) {
        check(record.op == ACTIVITY_EXT_OP_EXTERN_ID && record.external_id == EXTERNAL_ID, "external id");
        check(before == nullptr, "two external ids in a row");
        before = &record;
        continue;
      }
      const bool has_external = before != nullptr && before->correlation_id == record.correlation_id;
      check(has_external == (before != nullptr), "whose external id it is");
      check(has_external == (mode == "both" && record.thread_id == main_thread), "an external id");
      before = nullptr;
      check(record.domain == ACTIVITY_DOMAIN_HIP_API && record.kind == 0, "what was recorded");
      check(record.begin_ns > 0 && record.begin_ns <= record.end_ns, "times");
      check(record.process_id == static_cast<uint32_t>(getpid()), "process");
      check(ids.insert(record.correlation_id).second, "an id twice in records");
      recorded[record.op]++;
      auto call = told.find(record.correlation_id);
      if (mode == "both") {
        const std::pair<uint32_t, uint32_t> same{record.op, record.thread_id};
        check(call != told.end() && call->second == same, "callbacks and records that differ");
      }
    }
    if (mode == "both") check(ids.size() == told.size(), "as many records as callbacks");
    for (uint32_t op = 0; op < OPERATIONS; op++) {
      if (entered[op] + exited[op] + recorded[op] == 0) continue;
      out << roctracer_op_string(ACTIVITY_DOMAIN_HIP_API, op, 0) << ' ' << entered[op] << ' ' << exited[op] << ' '
          << recorded[op] << '\n';
    }
    std::map<uint32_t, uint64_t> hsa_recorded;
    for (auto& call : hsa_calls) hsa_recorded[call.second] += !of_the_runtime.count(call.first);
    for (uint32_t op = 0; op < HSA_API_ID_NUMBER; op++) {
      if (hsa_entered[op] + hsa_exited[op] + hsa_recorded[op] == 0) continue;
      out << roctracer_op_string(ACTIVITY_DOMAIN_HSA_API, op, 0) << ' ' << hsa_entered[op] << ' ' << hsa_exited[op] << ' '
          << hsa_recorded[op] << '\n';
    }
    std::map<uint64_t, uint32_t> calls;
    for (auto& record : records) calls[record.correlation_id] = record.op;
    for (auto& done : work) {
      const activity_record_t& record = done.first;
      auto call = calls.find(record.correlation_id);
      auto hsa_call = hsa_calls.find(record.correlation_id);
      const char* name = "-";
      if (call != calls.end()) name = roctracer_op_string(ACTIVITY_DOMAIN_HIP_API, call->second, 0);
      if (hsa_call != hsa_calls.end()) name = roctracer_op_string(ACTIVITY_DOMAIN_HSA_API, hsa_call->second, 0);
      out << "op " << record.domain << ' ' << record.op << ' ' << record.kind << ' ' << record.device_id << ' '
          << record.queue_id << ' ' << record.begin_ns << ' ' << record.end_ns << ' '
          << name << ' ' << done.second << '\n';
    }
    for (auto& kernel : launches) out << "launches " << kernel.first << ' ' << kernel.second << '\n';
    out << "events " << allocated << ' ' << freed << ' ' << devices << ' ' << loaded << ' ' << unloaded << '\n';
    out << "own " << own_calls << '\n' << "changing " << started << ' ' << stopped << '\n';
    for (auto& what : wrong) out << "wrong: " << what << '\n';
    out << "end\n";
  }
} watcher;

}  // namespace

// The runtime calls these in a tool: inside of hsa_init, and at its end.
extern "C" bool OnLoad(void*, uint64_t, uint64_t, const char* const*) {
  if (mode == "tool") watcher.enable();
  return true;
}
extern "C" void OnUnload() {}
