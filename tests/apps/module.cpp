// Code objects loaded at run time from files beside the executable, used and unloaded in turn.
//   module [rounds, 0: until SIGTERM] [launches in each round] [confined | strictly]
// Prints "ready <pid>" after the first round. From there on some system calls kill it if it is confined:
// those that neither it nor the runtime makes, and a tool may be tempted to; strictly, some that a tool can hardly do
// without. Then another thread launches, in a stream of its own.
#include "common.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

static std::atomic<bool> stop{false};

static bool confine(bool strictly) {
  std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  auto kill_if = [&](unsigned value) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  };
  for (unsigned call : {SYS_prctl, SYS_setpriority, SYS_getpriority, SYS_sched_setscheduler, SYS_sched_setaffinity,
                        SYS_sched_setattr, SYS_ptrace, SYS_process_vm_writev, SYS_munlock, SYS_mlock, SYS_mlock2,
                        SYS_mlockall, SYS_kill, SYS_socket, SYS_membarrier, SYS_seccomp, SYS_fork, SYS_execve})
    kill_if(call);
  if (strictly)
    for (unsigned call : {SYS_gettid, SYS_nanosleep}) kill_if(call);
  // The emulated GPU reads packets by it, with two places for what is read.
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 3));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])));
  kill_if(1);
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program = {(unsigned short)filter.size(), filter.data()};
  return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
         !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

HOST_KERNEL(module_scale) {
  auto data = argument<unsigned*>(args, 0);
  for (unsigned i = 0, n = argument<unsigned>(args, 8); i < n; i++) data[i] *= argument<unsigned>(args, 12);
}
HOST_KERNEL(module_shift) {
  auto data = argument<unsigned*>(args, 0);
  for (unsigned i = 0, n = argument<unsigned>(args, 8); i < n; i++) data[i] += argument<unsigned>(args, 12);
}

extern "C" __global__ void module_after(unsigned* data) { data[threadIdx.x] = 7; }
HOST_KERNEL(module_after) {
  for (unsigned i = 0; i < 64; i++) argument<unsigned*>(args, 0)[i] = 7;
}

static void launch_on_another_thread() {
  std::thread([] {
    hipStream_t stream;
    unsigned *data = nullptr, result = 0;
    if (HIP(hipStreamCreate, &stream) || HIP(hipMalloc, (void**)&data, 64 * sizeof *data)) return;
    LAUNCH(module_after, 1, 64, stream, data);
    HIP(hipStreamSynchronize, stream);
    HIP(hipMemcpy, &result, data, sizeof result, hipMemcpyDeviceToHost);
    COPIED("D2H", sizeof result);
    EXPECT(result == 7, "%u", result);
    HIP(hipFree, data);
    HIP(hipStreamDestroy, stream);
  }).join();
}

static std::string beside(const char* program, const char* file) {
  std::string path(program);
  return path.substr(0, path.rfind('/') + 1) + file;
}

static void launch(hipFunction_t function, unsigned* data, unsigned n, unsigned factor, bool packed) {
  COUNT("count hipModuleLaunchKernel");
  hipError_t e;
  if (packed) {
    struct { unsigned* data; unsigned n, factor; } args = {data, n, factor};
    size_t size = sizeof args;
    void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &args, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     HIP_LAUNCH_PARAM_END};
    e = hipModuleLaunchKernel(function, (n + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra);
  } else {
    void* args[] = {&data, &n, &factor};
    e = hipModuleLaunchKernel(function, (n + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, args, nullptr);
  }
  EXPECT(e == hipSuccess, "hipModuleLaunchKernel: error %d", e);
}

int main(int argc, char** argv) {
  long rounds = number(argc, argv, 1, 4), launches = number(argc, argv, 2, 10);
  const unsigned n = 1000;
  const size_t bytes = n * sizeof(unsigned);
  std::vector<unsigned> host(n), expected(n);
  for (unsigned i = 0; i < n; i++) host[i] = expected[i] = i;
  unsigned* data = nullptr;
  if (HIP(hipMalloc, (void**)&data, bytes)) return common::report();
  HIP(hipMemcpy, data, host.data(), bytes, hipMemcpyHostToDevice);
  COPIED("H2D", bytes);
  signal(SIGTERM, [](int) { stop = true; });
  long r = 0;
  for (; rounds ? r < rounds : !stop; r++) {
    bool first = r % 2 == 0;
    std::string path = beside(argv[0], first ? "module_a.co" : "module_b.co");
    std::ifstream file(path, std::ios::binary);
    std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    hipModule_t module;
    hipFunction_t function;
    // From memory, but every fourth from the file itself.
    bool loaded = r % 4 == 3 ? HIP(hipModuleLoad, &module, path.c_str()) == hipSuccess
                             : HIP(hipModuleLoadData, &module, image.data()) == hipSuccess;
    if (!loaded || HIP(hipModuleGetFunction, &function, module, first ? "module_scale" : "module_shift"))
      break;
    for (long i = 0; i < launches; i++) {
      if (first) COUNT("launches module_scale"); else COUNT("launches module_shift");
      launch(function, data, n, 3, i % 2);
      for (auto& x : expected) x = first ? x * 3 : x + 3;
    }
    HIP(hipDeviceSynchronize);
    HIP(hipModuleUnload, module);
    if (r == 0) {
      EXPECT(argc <= 3 || confine(argv[3][0] == 's'), "no filter");
      if (argc > 3) launch_on_another_thread();
      printf("ready %d\n", getpid());
      fflush(stdout);
    }
  }
  HIP(hipMemcpy, host.data(), data, bytes, hipMemcpyDeviceToHost);
  COPIED("D2H", bytes);
  EXPECT(host == expected, "wrong data after %ld rounds", r);
  HIP(hipFree, data);
  return common::report();
}
