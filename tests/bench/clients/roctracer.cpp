// Preloaded into the program that is measured. BENCH_CLIENT says what it enables of roctracer; `direct` registers an empty
// callback with HIP 5.2.3 itself, for all of its functions, without roctracer.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "roctracer_ext.h"

namespace {

const unsigned FUNCTIONS = 334;

void require(bool done, const char* what) {
  if (done) return;
  fprintf(stderr, "roctracer: %s failed\n", what);
  abort();
}
#define REQUIRE(call) require((call) == ROCTRACER_STATUS_SUCCESS, #call)

void nothing(uint32_t, uint32_t, const void*, void*) {}
void discard(const char*, const char*, void*) {}

// Where HIP puts a call's arguments.
thread_local uint64_t data[128];
void* place(uint32_t, activity_record_t*, const void*, void* argument) {
  data[1] = 0;
  return argument == nullptr ? data : nullptr;
}

void register_directly() {
  typedef int (*Register)(uint32_t, void*, void*);
  auto call = reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "hipRegisterApiCallback"));
  auto activity = reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "hipRegisterActivityCallback"));
  require(call != nullptr && activity != nullptr, "finding HIP's functions");
  for (unsigned op = 1; op < FUNCTIONS; op++) {
    activity(op, reinterpret_cast<void*>(place), reinterpret_cast<void*>(1));
    call(op, reinterpret_cast<void*>(nothing), nullptr);
  }
}

struct Client {
  Client() {
    const char* mode = getenv("BENCH_CLIENT");
    if (mode == nullptr || strcmp(mode, "disabled") == 0) return;
    if (strcmp(mode, "direct") == 0) {
      register_directly();
      return;
    }
    auto has = [mode](const char* what) { return strstr(mode, what) != nullptr; };
    roctracer_properties_t properties = {};
    properties.buffer_size = 1 << 20;
    properties.buffer_callback_fun = discard;
    // AMD's library of ROCm 5.2 needs the first, and has no functions for the default pool.
    REQUIRE(roctracer_set_properties(ACTIVITY_DOMAIN_HIP_API, nullptr));
    REQUIRE(roctracer_open_pool_expl(&properties, nullptr));
    if (has("hip")) REQUIRE(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HIP_API, nullptr));
    if (has("callback")) REQUIRE(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_HIP_API, nothing, nullptr));
    if (has("ops")) REQUIRE(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HIP_OPS, nullptr));
    if (has("hsa")) REQUIRE(roctracer_enable_domain_activity_expl(ACTIVITY_DOMAIN_HSA_API, nullptr));
  }
} client;

}  // namespace
