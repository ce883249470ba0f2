// Streams that wait for each other, events with times, and functions that run in between.
//   callbacks [rounds]
#include "common.h"

extern "C" __global__ void step_a(unsigned* x) {
  if (threadIdx.x == 0) *x = *x * 2 + 1;
}
HOST_KERNEL(step_a) {
  auto x = argument<unsigned*>(args, 0);
  *x = *x * 2 + 1;
}
extern "C" __global__ void step_b(unsigned* x) {
  if (threadIdx.x == 0) *x = *x * 3;
}
HOST_KERNEL(step_b) {
  auto x = argument<unsigned*>(args, 0);
  *x = *x * 3;
}

// Declared by the header of 5.2.3, missing in its library.
extern "C" hipError_t hipLaunchHostFunc(hipStream_t, hipHostFn_t, void*) __attribute__((weak));

static std::atomic<long> called{0};

static void stream_callback(hipStream_t, hipError_t status, void* data) {
  EXPECT(status == hipSuccess, "callback with error %d", status);
  EXPECT(data == &called, "callback with wrong data");
  called++;
}

static void host_function(void* data) {
  EXPECT(data == &called, "host function with wrong data");
  called++;
}

int main(int argc, char** argv) {
  long rounds = number(argc, argv, 1, 50);
  unsigned *x = nullptr, result = 0, expected = 0;
  if (HIP(hipMalloc, (void**)&x, sizeof *x)) return common::report();
  HIP(hipMemset, x, 0, sizeof *x);
  COPIED("fill", sizeof *x);
  hipStream_t a, b;
  HIP(hipStreamCreate, &a);
  HIP(hipStreamCreate, &b);
  hipEvent_t begin, a_done, b_done;
  HIP(hipEventCreate, &begin);
  HIP(hipEventCreate, &a_done);
  HIP(hipEventCreate, &b_done);
  HIP(hipDeviceSynchronize);
  for (long i = 0; i < rounds; i++) {
    HIP(hipEventRecord, begin, a);
    LAUNCH(step_a, 1, 64, a, x);
    HIP(hipEventRecord, a_done, a);
    HIP(hipStreamWaitEvent, b, a_done, 0);
    LAUNCH(step_b, 1, 64, b, x);
    HIP(hipStreamAddCallback, b, stream_callback, &called, 0);
    HIP(hipEventRecord, b_done, b);
    HIP(hipStreamWaitEvent, a, b_done, 0);
    if (i % 2 && hipLaunchHostFunc) HIP(hipLaunchHostFunc, a, host_function, &called);
    if (i % 2 && !hipLaunchHostFunc) HIP(hipStreamAddCallback, a, stream_callback, &called, 0);
    expected = (expected * 2 + 1) * 3;
    if (i % 10 == 9) {
      HIP(hipEventSynchronize, b_done);
      float ms = -1;
      HIP(hipEventElapsedTime, &ms, begin, b_done);
      EXPECT(ms >= 0 && ms < 10000, "elapsed time of %f ms", ms);
    }
  }
  HIP(hipStreamSynchronize, b);
  HIP(hipStreamSynchronize, a);
  HIP(hipMemcpy, &result, x, sizeof *x, hipMemcpyDeviceToHost);
  COPIED("D2H", sizeof *x);
  EXPECT(result == expected, "the streams made %u of %u", result, expected);
  EXPECT(called == rounds + rounds / 2, "%ld callbacks of %ld", called.load(), rounds + rounds / 2);
  for (hipEvent_t e : {begin, a_done, b_done}) HIP(hipEventDestroy, e);
  for (hipStream_t s : {a, b}) HIP(hipStreamDestroy, s);
  HIP(hipFree, x);
  return common::report();
}
