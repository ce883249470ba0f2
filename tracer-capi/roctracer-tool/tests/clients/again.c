/* A runtime that begins twice. */
#include <hsa/hsa.h>

int main(void) {
  int i;
  for (i = 0; i < 2; i++) {
    hsa_signal_t signal;
    if (hsa_init() != HSA_STATUS_SUCCESS) return 1;
    if (hsa_signal_create(1, 0, 0, &signal) != HSA_STATUS_SUCCESS) return 2;
    if (hsa_signal_destroy(signal) != HSA_STATUS_SUCCESS) return 3;
    if (hsa_shut_down() != HSA_STATUS_SUCCESS) return 4;
  }
  return 0;
}
