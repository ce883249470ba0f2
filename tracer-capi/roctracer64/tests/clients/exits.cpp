// A client in C++11 that ends without closing or flushing its pools: what was written is delivered, before the
// destructors of what was there when they were opened.

#include <unistd.h>

#include "roctracer_ext.h"
#include "roctracer_hip.h"

#include "check.h"

static int delivered;

struct Checks {
  ~Checks() {
    if (delivered != 3 + 2) {
      fprintf(stderr, "%d delivered\n", delivered);
      _exit(1);
    }
  }
};
static Checks checks;

static void deliver(const char* begin, const char* end, void*) {
  usleep(10000);
  delivered += static_cast<int>((end - begin) / sizeof(activity_record_t));
}

static void call(int times) {
  int device = -1;
  for (int i = 0; i < times; i++) CHECK(hipGetDevice(&device) == hipSuccess);
}

int main() {
  roctracer_properties_t properties = {};
  properties.buffer_size = 4096;
  properties.buffer_callback_fun = deliver;
  roctracer_pool_t* pool = nullptr;
  for (int times : {3, 2}) {
    CHECK(roctracer_open_pool_expl(&properties, &pool) == ROCTRACER_STATUS_SUCCESS);
    CHECK(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HIP_API, pool) == ROCTRACER_STATUS_SUCCESS);
    call(times);
  }
  return 0;
}
