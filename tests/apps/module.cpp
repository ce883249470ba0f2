// Code objects loaded at run time from files beside the executable, used and unloaded in turn.
//   module [rounds] [launches in each round]
#include "common.h"

#include <fstream>
#include <iterator>

HOST_KERNEL(module_scale) {
  auto data = argument<unsigned*>(args, 0);
  for (unsigned i = 0, n = argument<unsigned>(args, 8); i < n; i++) data[i] *= argument<unsigned>(args, 12);
}
HOST_KERNEL(module_shift) {
  auto data = argument<unsigned*>(args, 0);
  for (unsigned i = 0, n = argument<unsigned>(args, 8); i < n; i++) data[i] += argument<unsigned>(args, 12);
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
  for (long r = 0; r < rounds; r++) {
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
  }
  HIP(hipMemcpy, host.data(), data, bytes, hipMemcpyDeviceToHost);
  COPIED("D2H", bytes);
  EXPECT(host == expected, "wrong data after %ld rounds", rounds);
  HIP(hipFree, data);
  return common::report();
}
