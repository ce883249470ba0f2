// Graphs: captured from a stream and built by hand, three kernel nodes each, launched many times.
//   graph [launches of each]
#include "common.h"

#define KERNEL(name, op)                                                           \
  extern "C" __global__ void name(unsigned* x) {                                   \
    if (blockIdx.x == 0 && threadIdx.x == 0) *x op;                                \
  }                                                                                \
  HOST_KERNEL(name) { *argument<unsigned*>(args, 0) op; }
KERNEL(node_double, *= 2)
KERNEL(node_add, += 5)
KERNEL(node_mask, &= 0xffff)

static common::Counter launches_double("launches node_double"), launches_add("launches node_add"),
    launches_mask("launches node_mask");

static void launch_graph(hipGraphExec_t exec, hipStream_t stream, long n) {
  for (long i = 0; i < n; i++) {
    HIP(hipGraphLaunch, exec, stream);
    launches_double.add();
    launches_add.add();
    launches_mask.add();
  }
  HIP(hipStreamSynchronize, stream);
}

static hipGraph_t capture(hipStream_t stream, unsigned* x) {
  hipGraph_t graph = nullptr;
  HIP(hipStreamBeginCapture, stream, hipStreamCaptureModeGlobal);
  // Captured, not launched: only the compiler's calls count.
  for (int i = 0; i < 3; i++) {
    COUNT("count __hipPushCallConfiguration");
    COUNT("count __hipPopCallConfiguration");
    COUNT("count hipLaunchKernel");
  }
  node_double<<<1, 64, 0, stream>>>(x);
  node_add<<<1, 64, 0, stream>>>(x);
  node_mask<<<1, 64, 0, stream>>>(x);
  HIP(hipStreamEndCapture, stream, &graph);
  return graph;
}

static hipGraph_t build(unsigned** x) {
  hipGraph_t graph = nullptr;
  HIP(hipGraphCreate, &graph, 0);
  void* args[] = {x};
  hipGraphNode_t last = nullptr;
  for (void* function : {(void*)node_double, (void*)node_add, (void*)node_mask}) {
    hipKernelNodeParams params = {};
    params.func = function;
    params.gridDim = dim3(1);
    params.blockDim = dim3(64);
    params.kernelParams = args;
    hipGraphNode_t node = nullptr;
    HIP(hipGraphAddKernelNode, &node, graph, last ? &last : nullptr, last ? 1 : 0, &params);
    last = node;
  }
  return graph;
}

int main(int argc, char** argv) {
  long n = number(argc, argv, 1, 100);
  unsigned *x = nullptr, result = 0, expected = 1;
  if (HIP(hipMalloc, (void**)&x, sizeof *x)) return common::report();
  hipStream_t stream;
  HIP(hipStreamCreate, &stream);
  HIP(hipMemcpy, x, &expected, sizeof *x, hipMemcpyHostToDevice);
  COPIED("H2D", sizeof *x);
  for (int by_hand = 0; by_hand < 2; by_hand++) {
    hipGraph_t graph = by_hand ? build(&x) : capture(stream, x);
    hipGraphExec_t exec = nullptr;
    if (HIP(hipGraphInstantiate, &exec, graph, nullptr, nullptr, 0)) return common::report();
    launch_graph(exec, stream, n);
    HIP(hipGraphExecDestroy, exec);
    HIP(hipGraphDestroy, graph);
  }
  for (long i = 0; i < 2 * n; i++) expected = (expected * 2 + 5) & 0xffff;
  HIP(hipMemcpy, &result, x, sizeof *x, hipMemcpyDeviceToHost);
  COPIED("D2H", sizeof *x);
  EXPECT(result == expected, "the graphs made %u of %u", result, expected);
  HIP(hipStreamDestroy, stream);
  HIP(hipFree, x);
  return common::report();
}
