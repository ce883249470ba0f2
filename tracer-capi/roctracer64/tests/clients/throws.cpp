// A client in C++11 whose functions throw: what they throw passes through the library, which goes on.

#include <stdexcept>

#include "roctracer_ext.h"

#include "check.h"

static void throwing(void) { throw std::runtime_error("thrown"); }

static void throwing_allocator(char**, size_t, void*) { throw std::runtime_error("thrown"); }

template <typename Call> static bool throws(Call call) {
  try {
    call();
    return false;
  } catch (const std::runtime_error&) {
    return true;
  }
}

int main() {
  roctracer_ext_properties_t functions = {throwing, throwing};
  CHECK(roctracer_set_properties(ACTIVITY_DOMAIN_EXT_API, &functions) == ROCTRACER_STATUS_SUCCESS);
  CHECK(throws([] { roctracer_stop(); }));
  // It is stopped all the same.
  CHECK(!throws([] { roctracer_stop(); }));
  CHECK(throws([] { roctracer_start(); }));

  roctracer_properties_t properties = {};
  properties.buffer_size = 1024;
  properties.alloc_fun = throwing_allocator;
  roctracer_pool_t* pool = nullptr;
  CHECK(throws([&] { roctracer_open_pool(&properties); }));
  CHECK(throws([&] { roctracer_open_pool_expl(&properties, &pool); }));
  CHECK(roctracer_default_pool() == nullptr && pool == nullptr);

  properties.alloc_fun = nullptr;
  CHECK(roctracer_open_pool(&properties) == ROCTRACER_STATUS_SUCCESS);
  CHECK(roctracer_close_pool() == ROCTRACER_STATUS_SUCCESS);
  return 0;
}
