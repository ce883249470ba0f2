/* Marks of before the runtime's begin, and of after it. */
#include <hsa/hsa.h>
#include <roctracer/roctx.h>

int main(void) {
  roctxMarkA("early");
  const roctx_range_id_t range = roctxRangeStartA("whole");
  if (hsa_init() != HSA_STATUS_SUCCESS) return 1;
  roctxRangePushA("inside");
  roctxRangePop();
  roctxRangeStop(range);
  return hsa_shut_down() != HSA_STATUS_SUCCESS;
}
