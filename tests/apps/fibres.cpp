// Fibres: each waits for a stream of its own, and whoever waits lets the next one run, in the middle of the
// call. The first of each thread has the thread's own stack, which is above those of the others.
//   fibres [fibres 4] [launches 200] [threads 1] [near 0]
// near: the stacks of the first thread's fibres are where another thread's own would be, below its thread block.
#include "common.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <thread>

extern "C" __global__ void fibre_kernel(unsigned* x) {
  if (threadIdx.x == 0) atomicAdd(x, 1);
}
HOST_KERNEL(fibre_kernel) {
  // Long enough for waiting calls to sleep.
  usleep(500);
  __atomic_add_fetch(argument<unsigned*>(args, 0), 1, __ATOMIC_RELAXED);
}

namespace {

const size_t STACK = 256 << 10;

// The fibres of a thread, of which one runs.
struct Fibres {
  std::vector<ucontext_t> contexts;
  std::vector<char> ended;
  std::vector<hipStream_t> streams;
  size_t running = 0;
  // What waits holds no lock.
  bool synchronizes = false;
};
thread_local Fibres* own = nullptr;
std::atomic<long> switches{0};

// The stacks of the first thread's fibres, if they were mapped before all others: within 64 MiB below its thread block.
char* near = nullptr;
const unsigned NEAR = 8;

[[maybe_unused]] void map_first(int argc, char**, char**) {
  if (argc > 4) near = (char*)mmap(nullptr, NEAR * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
#ifndef __HIP_DEVICE_COMPILE__
// Before libraries are initialized, which start threads.
__attribute__((section(".preinit_array"), used)) void (*const run_first)(int, char**, char**) = map_first;
#endif

// Lets the next fibre run that has not ended; returns when this one has its turn again.
void let_others_run() {
  Fibres* fibres = own;
  if (!fibres || !fibres->synchronizes) return;
  const size_t from = fibres->running, count = fibres->contexts.size();
  for (size_t i = 1; i < count; i++) {
    const size_t to = (from + i) % count;
    if (to != 0 && fibres->ended[to]) continue;  // The first one waits for all.
    fibres->running = to;
    switches++;
    fibres->synchronizes = false;
    swapcontext(&fibres->contexts[from], &fibres->contexts[to]);
    fibres->synchronizes = true;
    return;
  }
}

unsigned* counters = nullptr;

void work(unsigned index, unsigned launches) {
  hipStream_t stream = own->streams[own->running];
  for (unsigned i = 0; i < launches; i++) {
    LAUNCH(fibre_kernel, 1, 64, stream, counters + index);
    own->synchronizes = true;
    HIP(hipStreamSynchronize, stream);
    own->synchronizes = false;
  }
  own->ended[own->running] = 1;
}

void fibre(unsigned index, unsigned launches) {
  work(index, launches);
  own->synchronizes = true;
  let_others_run();
}

void run(unsigned first, unsigned count, unsigned launches) {
  Fibres fibres;
  fibres.contexts.resize(count);
  fibres.ended.resize(count);
  fibres.streams.resize(count);
  for (hipStream_t& stream : fibres.streams) HIP(hipStreamCreate, &stream);
  for (unsigned i = 1; i < count; i++) {
    ucontext_t& context = fibres.contexts[i];
    getcontext(&context);
    // Mapped one after the other: each is below the one before, and the thread's is above.
    context.uc_stack.ss_sp =
        first == 0 && near && i < NEAR
            ? near + i * STACK
            : mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    context.uc_stack.ss_size = STACK;
    makecontext(&context, (void (*)())fibre, 2, first + i, launches);
  }
  own = &fibres;
  work(first, launches);
  for (size_t i = 1; i < count; i++) {
    while (!fibres.ended[i]) {
      fibres.synchronizes = true;
      let_others_run();
    }
  }
  own = nullptr;
  for (hipStream_t stream : fibres.streams) HIP(hipStreamDestroy, stream);
}

}  // namespace

// What the runtimes wait with.
extern "C" int hsaKmtWaitOnEvent(void* event, unsigned milliseconds) {
  using Wait = int (*)(void*, unsigned);
  static const Wait next = (Wait)dlsym(RTLD_NEXT, "hsaKmtWaitOnEvent");
  let_others_run();
  return next(event, own ? 1 : milliseconds);
}
extern "C" int sched_yield() noexcept {
  let_others_run();
  return 0;
}

int main(int argc, char** argv) {
  const unsigned count = (unsigned)number(argc, argv, 1, 4), launches = (unsigned)number(argc, argv, 2, 200),
                 threads = (unsigned)number(argc, argv, 3, 1);
  const size_t bytes = count * threads * sizeof *counters;
  std::vector<unsigned> results(count * threads);
  if (near) EXPECT((uintptr_t)pthread_self() - (uintptr_t)near < 64 << 20, "not near: %p", near);
  // So that waiting is sleeping.
  HIP(hipSetDeviceFlags, hipDeviceScheduleBlockingSync);
  if (HIP(hipMalloc, (void**)&counters, bytes)) return common::report();
  HIP(hipMemset, counters, 0, bytes);
  COPIED("fill", bytes);
  std::vector<std::thread> all;
  for (unsigned t = 1; t < threads; t++) all.emplace_back(run, t * count, count, launches);
  run(0, count, launches);
  for (auto& thread : all) thread.join();
  HIP(hipDeviceSynchronize);
  HIP(hipMemcpy, results.data(), counters, bytes, hipMemcpyDeviceToHost);
  COPIED("D2H", bytes);
  for (unsigned result : results) EXPECT(result == launches, "ran %u of %u", result, launches);
  EXPECT(switches > 0, "no fibre has waited");
  HIP(hipFree, counters);
  printf("switches %ld\n", switches.load());
  return common::report();
}
