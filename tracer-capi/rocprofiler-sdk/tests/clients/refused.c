// Memory that the runtime refuses, of the first pool that there is.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

static hsa_status_t first(hsa_amd_memory_pool_t pool, void* data) {
  *(hsa_amd_memory_pool_t*)data = pool;
  return HSA_STATUS_INFO_BREAK;
}

static hsa_status_t look(hsa_agent_t agent, void* data) {
  return hsa_amd_agent_iterate_memory_pools(agent, first, data);
}

int main(void) {
  hsa_amd_memory_pool_t pool = {0};
  void* memory = &pool;
  if (hsa_init() != HSA_STATUS_SUCCESS || hsa_iterate_agents(look, &pool) != HSA_STATUS_INFO_BREAK) return 1;
  if (hsa_amd_memory_pool_allocate(pool, (size_t)1 << 60, 0, &memory) == HSA_STATUS_SUCCESS) return 2;
  return hsa_shut_down() == HSA_STATUS_SUCCESS ? 0 : 3;
}
