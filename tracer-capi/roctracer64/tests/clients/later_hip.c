// A client in C99 with a HIP that is later than all that are known: it has names, and its calls are not traced.

#include <string.h>

#include <roctracer/roctracer_ext.h>

#include "check.h"

extern int registrations(void);

static void on_call(uint32_t domain, uint32_t op, const void* data, void* argument) {
  (void)domain, (void)op, (void)data, (void)argument;
}

static void deliver(const char* begin, const char* end, void* argument) { (void)begin, (void)end, (void)argument; }

static void expect_refused(roctracer_status_t status) {
  CHECK(status == ROCTRACER_STATUS_ERROR);
  const char* text = roctracer_error_string();
  CHECK(strstr(text, "libamdhip64.so.9 cannot be traced: its release is not known, and later than ROCm 7.2") != NULL);
  free((void*)text);
}

int main(void) {
  const activity_domain_t hip = ACTIVITY_DOMAIN_HIP_API;
  uint32_t op = 0;
  CHECK(strcmp(roctracer_op_string(hip, 450, 0), "hipFunction450") == 0);
  CHECK(roctracer_op_string(hip, 451, 0) == NULL);
  CHECK(roctracer_op_code(hip, "hipFunction77", &op, NULL) == ROCTRACER_STATUS_SUCCESS && op == 77);
  CHECK(roctracer_op_code(hip, "hipMalloc", &op, NULL) == ROCTRACER_STATUS_ERROR_INVALID_ARGUMENT);

  expect_refused(roctracer_enable_domain_callback(hip, on_call, NULL));
  expect_refused(roctracer_enable_op_callback(hip, 450, on_call, NULL));
  roctracer_properties_t properties = {0};
  properties.buffer_size = 4096;
  properties.buffer_callback_fun = deliver;
  CHECK(roctracer_open_pool(&properties) == ROCTRACER_STATUS_SUCCESS);
  expect_refused(roctracer_enable_domain_activity(hip));
  CHECK(roctracer_disable_domain_activity(hip) == ROCTRACER_STATUS_SUCCESS);
  CHECK(roctracer_disable_domain_callback(hip) == ROCTRACER_STATUS_SUCCESS);
  CHECK(registrations() == 0);
  // Other domains are traced.
  CHECK(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_ROCTX, on_call, NULL) == ROCTRACER_STATUS_SUCCESS);
  CHECK(roctracer_close_pool() == ROCTRACER_STATUS_SUCCESS);
  return 0;
}
