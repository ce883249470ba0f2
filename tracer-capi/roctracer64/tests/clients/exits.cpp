// A client in C++11 that ends without closing or flushing its pools: what was written is delivered, before the
// destructors of what was there when they were opened, and so is what a GPU has been given.

#include <unistd.h>

#include "roctracer_ext.h"
#include "roctracer_hip.h"

#include "check.h"

static int calls, fills;

struct Checks {
  ~Checks() {
    if (calls != 3 + 2 + 1 + 4 || fills != 4) {
      fprintf(stderr, "%d calls and %d fills delivered\n", calls, fills);
      _exit(1);
    }
  }
};
static Checks checks;

static void deliver(const char* begin, const char* end, void*) {
  usleep(10000);
  auto record = reinterpret_cast<const activity_record_t*>(begin);
  for (; record < reinterpret_cast<const activity_record_t*>(end); roctracer_next_record(record, &record)) {
    if (record->domain == ACTIVITY_DOMAIN_HIP_API) calls++;
    if (record->domain == ACTIVITY_DOMAIN_HIP_OPS && record->op == HIP_OP_ID_COPY) fills++;
  }
}

static void nothing(uint32_t, uint32_t, const void*, void*) {}

static void call(int times) {
  int device = -1;
  for (int i = 0; i < times; i++) CHECK(hipGetDevice(&device) == hipSuccess);
}

int main() {
  // The runtime's tables are patched before there is a pool.
  CHECK(roctracer_enable_op_callback(ACTIVITY_DOMAIN_HSA_API, 0, nothing, nullptr) == ROCTRACER_STATUS_SUCCESS);
  roctracer_properties_t properties = {};
  properties.buffer_size = 4096;
  properties.buffer_callback_fun = deliver;
  roctracer_pool_t* pool = nullptr;
  for (int times : {3, 2}) {
    CHECK(roctracer_open_pool_expl(&properties, &pool) == ROCTRACER_STATUS_SUCCESS);
    CHECK(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HIP_API, pool) == ROCTRACER_STATUS_SUCCESS);
    call(times);
  }
  CHECK(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HIP_OPS, pool) == ROCTRACER_STATUS_SUCCESS);
  void* memory = nullptr;
  CHECK(hipMalloc(&memory, 4096) == hipSuccess);
  for (int i = 0; i < 4; i++) CHECK(hipMemsetAsync(memory, i, 4096, nullptr) == hipSuccess);
  return 0;
}
