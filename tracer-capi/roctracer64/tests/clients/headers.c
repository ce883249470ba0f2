// In C99: what belongs to HIP, with the headers of the HIP that is installed.
#include <roctracer/roctracer_hip.h>

int main(void) {
  hip_api_data_t data;
  data.args.hipMalloc.size = HIP_API_ID_hipMalloc;
  return data.args.hipMalloc.size == 0 || HIP_OP_ID_DISPATCH != 0 || HIP_OP_ID_COPY != 1 ||
         HIP_OP_ID_BARRIER != 2 || HIP_OP_ID_NUMBER != 3;
}
