// Launches kernels, and ends in the way that it is told.
#include <hip/hip_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

static void require(hipError_t result) {
  if (result != hipSuccess) abort();
}

static hipFunction_t kernel;
static unsigned* memory;

static void launch(int times) {
  unsigned count = 1, by = 1;
  void* arguments[] = {&memory, &count, &by};
  for (int i = 0; i < times; i++) {
    require(hipModuleLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
  }
}

int main(int, char** argv) {
  const std::string mode = argv[1];
  hipModule_t module;
  require(hipModuleLoad(&module, (std::string(getenv("MODULES")) + "/module_a.co").c_str()));
  require(hipModuleGetFunction(&kernel, module, "module_scale"));
  require(hipMalloc(reinterpret_cast<void**>(&memory), 4096));
  launch(20);
  if (mode == "_exit") {
    require(hipDeviceSynchronize());
    _exit(3);
  }
  if (mode == "exit") exit(3);
  if (mode == "fork") {
    require(hipDeviceSynchronize());
    const pid_t child = fork();
    if (child == 0) exit(4);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 4) abort();
    launch(20);
  }
  if (mode == "exec") {
    require(hipDeviceSynchronize());
    execl("/bin/sh", "sh", "-c", "exit 3", nullptr);
  }
  if (mode == "threads") {
    // One that never stops, and calls HIP while the process ends.
    static std::atomic<bool> begun{false};
    std::thread([] {
      for (;;) {
        int device;
        (void)hipGetDevice(&device);
        begun = true;
      }
    }).detach();
    while (!begun) usleep(1000);
  }
  if (mode == "exception") {
    try {
      launch(1);
      throw std::runtime_error("mine");
    } catch (const std::runtime_error&) {
      launch(1);
    }
  }
  if (mode == "bad") {
    // HIP refuses these, and touches nothing of what they point at.
    void* nowhere = nullptr;
    if (hipMalloc(reinterpret_cast<void**>(8), ~size_t{0} / 2) == hipSuccess) abort();
    if (hipMalloc(&nowhere, ~size_t{0} / 2) == hipSuccess) abort();
    if (hipModuleGetFunction(&kernel, module, "no_such_kernel") == hipSuccess) abort();
  }
  return 3;
}
