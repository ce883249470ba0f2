// Three kernels whose names are 10,000 characters long and differ in their last ones: launched 3, 5 and 7 times.
#include "common.h"

template <class T, T...>
struct Sequence {};
using First1500 = __make_integer_seq<Sequence, unsigned, 1500>;

template <unsigned... Numbers>
__global__ void long_name(unsigned* x) {
  if (x) *x = sizeof...(Numbers);
}

template <unsigned Last, unsigned... Numbers>
static void launch(int times, Sequence<unsigned, Numbers...>) {
  for (int i = 0; i < times; i++) {
    long_name<Numbers..., Last><<<1, 64>>>(nullptr);
    EXPECT(hipGetLastError() == hipSuccess, "launch %d of %u", i, Last);
  }
}

int main() {
  launch<2001>(3, First1500());
  launch<2002>(5, First1500());
  launch<2003>(7, First1500());
  HIP(hipDeviceSynchronize);
  return common::report();
}
