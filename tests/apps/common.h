// What the test programs share: calls that are counted by name, host stand-ins for kernels, and the
// report at the end. See README.md for the format of the report.
#pragma once

#include <hip/hip_runtime.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace common {

// One line of the report. Made once for each place in the source, counted from any thread.
struct Counter {
  std::string label;
  std::atomic<long> number{0};
  std::atomic<long long> bytes{-1};  // −1: this line has no bytes

  explicit Counter(std::string text) : label(std::move(text)) {
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    all().push_back(this);
  }
  void add(long long more_bytes = -1) {
    number.fetch_add(1, std::memory_order_relaxed);
    if (more_bytes >= 0) {
      long long none = -1;
      bytes.compare_exchange_strong(none, 0);
      bytes.fetch_add(more_bytes, std::memory_order_relaxed);
    }
  }
  static std::vector<Counter*>& all() {
    static std::vector<Counter*> list;
    return list;
  }
};

inline std::string& failure() {
  static std::string text;
  return text;
}

// Remembers the first thing that went wrong.
__attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...) {
  static std::mutex lock;
  std::lock_guard<std::mutex> guard(lock);
  if (!failure().empty()) return;
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  failure() = text;
}

// Prints the counts, summed by label, and the verdict; the program's exit status.
inline int report() {
  std::map<std::string, std::pair<long, long long>> sums;
  for (Counter* c : Counter::all()) {
    auto& sum = sums.emplace(c->label, std::make_pair(0L, -1LL)).first->second;
    sum.first += c->number;
    if (c->bytes >= 0) sum.second = (sum.second < 0 ? 0 : sum.second) + c->bytes;
  }
  std::string out;
  for (auto& s : sums) {
    if (s.second.first == 0) continue;
    out += s.first + " " + std::to_string(s.second.first);
    if (s.second.second >= 0) out += " " + std::to_string(s.second.second);
    out += "\n";
  }
  out += failure().empty() ? "result ok\n" : "result FAILED: " + failure() + "\n";
  fputs(out.c_str(), stdout);
  fflush(stdout);
  return failure().empty() ? 0 : 1;
}

}  // namespace common

#define COUNT(label)                    \
  do {                                  \
    static common::Counter c_(label);   \
    c_.add();                           \
  } while (0)

// Calls a HIP function, counts it, and remembers a failure.
#define HIP(function, ...)                                                        \
  [&]() -> hipError_t {                                                           \
    COUNT("count " #function);                                                    \
    hipError_t e_ = function(__VA_ARGS__);                                        \
    if (e_ != hipSuccess) common::fail(#function " at line %d: error %d", __LINE__, e_); \
    return e_;                                                                    \
  }()

// Launches an extern "C" kernel. The compiler makes three calls of it.
#define LAUNCH(kernel, grid, block, stream, ...)         \
  do {                                                   \
    COUNT("count __hipPushCallConfiguration");           \
    COUNT("count __hipPopCallConfiguration");            \
    COUNT("count hipLaunchKernel");                      \
    COUNT("launches " #kernel);                          \
    kernel<<<grid, block, 0, stream>>>(__VA_ARGS__);     \
  } while (0)

// Notes a copy (H2D, D2H, D2D) or a fill that a call asked for.
#define COPIED(direction, n)                               \
  do {                                                     \
    static common::Counter c_("copies " direction);        \
    c_.add((long long)(n));                                \
  } while (0)

#define EXPECT(condition, ...)                    \
  do {                                            \
    if (!(condition)) common::fail(__VA_ARGS__);  \
  } while (0)

// What the emulated GPU runs in a kernel's place: a function of the program, found by name.
// `args` points to the kernel's arguments, laid out as in a C structure.
#define HOST_KERNEL(kernel)                                                                \
  extern "C" __attribute__((visibility("default"), used)) void emugpu_##kernel(            \
      const void* args, const unsigned grid[3], const unsigned workgroup[3])

template <typename T>
T argument(const void* args, size_t offset) {
  T value;
  memcpy(&value, static_cast<const char*>(args) + offset, sizeof value);
  return value;
}

inline long number(int argc, char** argv, int i, long otherwise) {
  return i < argc ? atol(argv[i]) : otherwise;
}
