// C++ exceptions that leave a callback and are caught outside the runtime's function: a tracer that
// wraps the function must let them through. The runtime forwards them from the functions below (its
// `callback_t`); 5.2.3 with asserts aborts on one from hsa_agent_iterate_isas.
#include "common.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <functional>
#include <stdexcept>

static void expect_through(const char* name, const std::function<void(const std::string&)>& call) {
  static long caught = 0;
  std::string text = std::string("thrown through ") + name;
  try {
    call(text);
    common::fail("%s swallowed the exception", name);
  } catch (const std::runtime_error& e) {
    if (text != e.what()) common::fail("%s changed the exception to %s", name, e.what());
    printf("caught %ld %s\n", ++caught, name);
  }
}

static hsa_agent_t gpu;

static hsa_status_t find_gpu(hsa_agent_t agent, void*) {
  hsa_device_type_t type;
  hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
  if (type == HSA_DEVICE_TYPE_GPU) gpu = agent;
  return HSA_STATUS_SUCCESS;
}

template <typename Handle>
static hsa_status_t throw_text(Handle, void* text) {
  throw std::runtime_error(*static_cast<const std::string*>(text));
}

int main() {
  if (hsa_init() != HSA_STATUS_SUCCESS) {
    common::fail("hsa_init");
    return common::report();
  }
  hsa_iterate_agents(find_gpu, nullptr);  // counted below
  for (int i = 0; i < 3; i++) {
    COUNT("count hsa_iterate_agents");
    expect_through("hsa_iterate_agents", [](const std::string& t) {
      hsa_iterate_agents(throw_text<hsa_agent_t>, (void*)&t);
    });
    COUNT("count hsa_agent_iterate_regions");
    expect_through("hsa_agent_iterate_regions", [](const std::string& t) {
      hsa_agent_iterate_regions(gpu, throw_text<hsa_region_t>, (void*)&t);
    });
    COUNT("count hsa_amd_agent_iterate_memory_pools");
    expect_through("hsa_amd_agent_iterate_memory_pools", [](const std::string& t) {
      hsa_amd_agent_iterate_memory_pools(gpu, throw_text<hsa_amd_memory_pool_t>, (void*)&t);
    });
    COUNT("count hsa_agent_iterate_caches");
    expect_through("hsa_agent_iterate_caches", [](const std::string& t) {
      hsa_agent_iterate_caches(gpu, throw_text<hsa_cache_t>, (void*)&t);
    });
  }
  COUNT("count hsa_iterate_agents");  // the first one, which found the GPU
  // The runtime still works.
  uint64_t now = 0;
  EXPECT(hsa_system_get_info(HSA_SYSTEM_INFO_TIMESTAMP, &now) == HSA_STATUS_SUCCESS && now > 0,
         "the runtime does not answer afterwards");
  return common::report();
}
