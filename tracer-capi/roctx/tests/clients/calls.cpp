// A client in C++11, that includes the headers as those who name their directory do: two threads change the
// tracer while others make calls, and what a tracer throws reaches the caller.

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "roctracer_roctx.h"
#include "roctx.h"

static std::atomic<int> told[2];

template <int N> static int tell(activity_domain_t domain, uint32_t operation, void* data) {
  CHECK(domain == ACTIVITY_DOMAIN_ROCTX && operation == ROCTX_API_ID_roctxMarkA);
  CHECK(*static_cast<roctx_api_data_t*>(data)->args.roctxMarkA.message == 'm');
  told[N]++;
  return 0;
}

static int refuse(activity_domain_t, uint32_t, void*) { throw std::runtime_error("refused"); }

int main() {
  std::atomic<bool> done{false};
  std::vector<std::thread> markers;
  for (int i = 0; i < 6; i++) {
    markers.emplace_back([&] {
      while (!done) roctxMarkA("mark");
    });
  }
  std::thread first([] {
    while (told[0] < 1000) roctxRegisterTracerCallback(tell<0>);
  });
  std::thread second([] {
    while (told[1] < 1000) {
      roctxRegisterTracerCallback(tell<1>);
      roctxRegisterTracerCallback(nullptr);
    }
  });
  first.join();
  second.join();
  done = true;
  for (auto& marker : markers) marker.join();

  roctxRegisterTracerCallback(refuse);
  int caught = 0;
  const auto throws = [&](void (*call)()) {
    try {
      call();
    } catch (const std::runtime_error&) {
      caught++;
    }
  };
  throws([] { roctxMarkA("mark"); });
  throws([] { roctxRangePushA("push"); });
  throws([] { roctxRangePop(); });
  throws([] { roctxRangeStartA("start"); });
  throws([] { roctxRangeStop(1); });
  CHECK(caught == 5);
  roctxRegisterTracerCallback(nullptr);
  CHECK(roctxRangePushA("push") == 0);  // Those that were refused have not happened.
}
