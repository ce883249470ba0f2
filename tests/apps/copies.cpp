// Every kind of copy and fill in many sizes, with real bytes checked.
//   copies [largest size in KiB]
#include "common.h"

static unsigned seed = 1;

static void scramble(void* to, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    seed = seed * 1664525 + 1013904223;
    ((unsigned char*)to)[i] = seed >> 24;
  }
}

#define SAME(a, b, n, what) EXPECT(memcmp(a, b, n) == 0, what " of %zu bytes changed them", (size_t)(n))

// There, across and back, through host memory of one kind.
static void round_trip(char* host, char* back, char* a, char* b, size_t n, hipStream_t stream) {
  scramble(host, n);
  memset(back, 0, n);
  if (stream) {
    HIP(hipMemcpyAsync, a, host, n, hipMemcpyHostToDevice, stream);
    HIP(hipMemcpyAsync, b, a, n, hipMemcpyDeviceToDevice, stream);
    HIP(hipMemcpyAsync, back, b, n, hipMemcpyDeviceToHost, stream);
    HIP(hipStreamSynchronize, stream);
  } else {
    HIP(hipMemcpy, a, host, n, hipMemcpyHostToDevice);
    HIP(hipMemcpy, b, a, n, hipMemcpyDeviceToDevice);
    HIP(hipMemcpy, back, b, n, hipMemcpyDeviceToHost);
  }
  COPIED("H2D", n);
  COPIED("D2D", n);
  COPIED("D2H", n);
  SAME(host, back, n, "a round trip");
}

static void rectangles(char* host, char* back, char* a, char* b, size_t width, size_t height) {
  const size_t wide = width + 24, n = width * height;
  scramble(host, n);
  HIP(hipMemset, a, 0, wide * height);
  COPIED("fill", wide * height);
  HIP(hipMemcpy2D, a, wide, host, width, width, height, hipMemcpyHostToDevice);
  HIP(hipMemcpy2D, b, width, a, wide, width, height, hipMemcpyDeviceToDevice);
  HIP(hipMemcpy2D, back, width, b, width, width, height, hipMemcpyDeviceToHost);
  COPIED("H2D", n);
  COPIED("D2D", n);
  COPIED("D2H", n);
  SAME(host, back, n, "2D copies");
  HIP(hipMemset2D, a, wide, 0x11, width, height);
  COPIED("fill", n);
  HIP(hipMemcpy, back, a, wide * height, hipMemcpyDeviceToHost);
  COPIED("D2H", wide * height);
  for (size_t i = 0; i < wide * height; i++) {
    bool inside = i % wide < width;
    EXPECT(back[i] == (inside ? 0x11 : 0), "2D fill: byte %zu is %x", i, back[i]);
  }
}

static void fills(char* back, char* a, size_t n) {
  n &= ~size_t(3);
  HIP(hipMemset, a, 0xa1, n);
  HIP(hipMemcpy, back, a, n, hipMemcpyDeviceToHost);
  for (size_t i = 0; i < n; i++) EXPECT(back[i] == (char)0xa1, "fill of %zu: byte %zu is %x", n, i, back[i]);
  HIP(hipMemsetD16, a, 0xb2c3, n / 2);
  HIP(hipMemcpy, back, a, n, hipMemcpyDeviceToHost);
  for (size_t i = 0; i < n / 2; i++)
    EXPECT(((unsigned short*)back)[i] == 0xb2c3, "fill of %zu: half-word %zu", n, i);
  HIP(hipMemsetD32, a, 0xd4e5f607, n / 4);
  HIP(hipMemcpy, back, a, n, hipMemcpyDeviceToHost);
  for (size_t i = 0; i < n / 4; i++)
    EXPECT(((unsigned*)back)[i] == 0xd4e5f607, "fill of %zu: word %zu", n, i);
  for (int i = 0; i < 3; i++) {
    COPIED("fill", n);
    COPIED("D2H", n);
  }
}

int main(int argc, char** argv) {
  const size_t largest = number(argc, argv, 1, 9 * 1024) * 1024 + 5;
  char *a, *b, *pinned_in, *pinned_out;
  if (HIP(hipMalloc, (void**)&a, largest) || HIP(hipMalloc, (void**)&b, largest)) return common::report();
  HIP(hipHostMalloc, (void**)&pinned_in, largest, 0);
  HIP(hipHostMalloc, (void**)&pinned_out, largest, 0);
  std::vector<char> in(largest), out(largest);
  hipStream_t stream;
  HIP(hipStreamCreate, &stream);
  for (size_t n : {size_t(1), size_t(3), size_t(64), size_t(4096), size_t(65537), size_t(1 << 20), largest}) {
    if (n > largest) continue;
    for (hipStream_t s : {hipStream_t(nullptr), stream}) {
      round_trip(in.data(), out.data(), a, b, n, s);
      round_trip(pinned_in, pinned_out, a, b, n, s);
      // Odd addresses.
      if (n > 64) round_trip(in.data() + 1, out.data() + 2, a + 3, b + 5, n - 5, s);
    }
    if (n >= 64) fills(out.data(), a, n);
  }
  rectangles(in.data(), out.data(), a, b, 100, 37);
  rectangles(in.data(), out.data(), a, b, 256, 64);
  rectangles(pinned_in, pinned_out, a, b, 33, 7);

  // Memory that is pinned after the fact.
  const size_t page = 4096, late = 64 * page < largest ? 64 * page : page;
  char* late_pinned = (char*)aligned_alloc(page, late);
  HIP(hipHostRegister, late_pinned, late, hipHostRegisterDefault);
  round_trip(late_pinned, pinned_out, a, b, late, stream);
  HIP(hipHostUnregister, late_pinned);
  free(late_pinned);
  HIP(hipStreamDestroy, stream);
  HIP(hipHostFree, pinned_in);
  HIP(hipHostFree, pinned_out);
  HIP(hipFree, a);
  HIP(hipFree, b);
  return common::report();
}
