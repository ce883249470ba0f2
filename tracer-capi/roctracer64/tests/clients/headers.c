// In C99: what belongs to HIP and HSA, with the headers of those that are installed.
#include <roctracer/roctracer_hip.h>
#include <roctracer/roctracer_hsa.h>

int main(void) {
  hip_api_data_t data;
  hsa_evt_data_t event;
  data.args.hipMalloc.size = HIP_API_ID_hipMalloc;
  event.codeobj.unload = HSA_EVT_ID_CODEOBJ;
  return data.args.hipMalloc.size == 0 || HIP_OP_ID_DISPATCH != 0 || HIP_OP_ID_COPY != 1 ||
         HIP_OP_ID_BARRIER != 2 || HIP_OP_ID_NUMBER != 3 || HSA_OP_ID_RESERVED1 != 3 || HSA_OP_ID_NUMBER != 4 ||
         event.codeobj.unload != 5 || HSA_EVT_ID_NUMBER != 6 || sizeof event != 72 || HSA_API_ID_NUMBER < 187 ||
         HSA_API_ID_hsa_amd_memory_async_copy != 140;
}
