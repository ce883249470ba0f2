// When the library registers itself with roctx's, and takes itself back.

#include <roctracer/roctracer.h>

#include "check.h"

typedef int (*tracer_t)(activity_domain_t, uint32_t, void*);
void roctxRegisterTracerCallback(tracer_t tracer);
tracer_t registered_tracer(void);
int registrations(void);

static void nothing(uint32_t domain, uint32_t cid, const void* data, void* arg) {
  (void)domain, (void)cid, (void)data, (void)arg;
}
static int another(activity_domain_t domain, uint32_t op, void* data) {
  (void)domain, (void)op, (void)data;
  return 0;
}

#define REQUIRE(call) CHECK((call) == ROCTRACER_STATUS_SUCCESS)

int main(void) {
  REQUIRE(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_ROCTX));
  CHECK(registrations() == 0);
  for (int i = 0; i < 3; i++) {
    REQUIRE(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_ROCTX, nothing, NULL));
    CHECK(registrations() == 2 * i + 1 && registered_tracer() != NULL);
    REQUIRE(roctracer_disable_op_callback(ACTIVITY_DOMAIN_ROCTX, 0));
    CHECK(registrations() == 2 * i + 1);
    REQUIRE(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_ROCTX));
    CHECK(registrations() == 2 * i + 2 && registered_tracer() == NULL);
  }
  // A tracer that came later stays while one is wanted.
  REQUIRE(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_ROCTX, nothing, NULL));
  roctxRegisterTracerCallback(another);
  REQUIRE(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_ROCTX, nothing, NULL));
  REQUIRE(roctracer_disable_op_callback(ACTIVITY_DOMAIN_ROCTX, 0));
  CHECK(registered_tracer() == another);
  return 0;
}
