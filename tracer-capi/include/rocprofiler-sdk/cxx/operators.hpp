// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Comparison of handles, agents and sizes of grids. Source compatible with the header of the same name of ROCprofiler-SDK
// 0.5.

#ifndef ROCPROFILER_SDK_CXX_OPERATORS_HPP_
#define ROCPROFILER_SDK_CXX_OPERATORS_HPP_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/internal_threading.h>

#include <cstdint>
#include <tuple>

namespace rocprofiler {
namespace sdk {
namespace operators {

// What a value is compared by.
template <typename T>
uint64_t key(T value) {
  static_assert(sizeof(T) == sizeof(uint64_t), "a handle and nothing else");
  return value.handle;
}

inline uint64_t key(const rocprofiler_agent_v0_t& agent) { return agent.id.handle; }

// By how many there are, then by each.
inline std::tuple<uint64_t, uint32_t, uint32_t, uint32_t> key(rocprofiler_dim3_t size) {
  return std::make_tuple(uint64_t{size.x} * size.y * size.z, size.x, size.y, size.z);
}

}  // namespace operators
}  // namespace sdk
}  // namespace rocprofiler

#define ROCPROFILER_SDK_COMPARE(TYPE, OPERATOR)                                                       \
  inline bool operator OPERATOR(TYPE left, TYPE right) {                                              \
    return ::rocprofiler::sdk::operators::key(left) OPERATOR ::rocprofiler::sdk::operators::key(right); \
  }
#define ROCPROFILER_SDK_COMPARISONS(TYPE) \
  ROCPROFILER_SDK_COMPARE(TYPE, ==)       \
  ROCPROFILER_SDK_COMPARE(TYPE, !=)       \
  ROCPROFILER_SDK_COMPARE(TYPE, <)        \
  ROCPROFILER_SDK_COMPARE(TYPE, >)        \
  ROCPROFILER_SDK_COMPARE(TYPE, <=)       \
  ROCPROFILER_SDK_COMPARE(TYPE, >=)

ROCPROFILER_SDK_COMPARISONS(rocprofiler_context_id_t)
ROCPROFILER_SDK_COMPARISONS(rocprofiler_agent_id_t)
ROCPROFILER_SDK_COMPARISONS(rocprofiler_queue_id_t)
ROCPROFILER_SDK_COMPARISONS(rocprofiler_buffer_id_t)
ROCPROFILER_SDK_COMPARISONS(rocprofiler_counter_id_t)
#if ROCPROFILER_SDK_INTERFACE >= 1
ROCPROFILER_SDK_COMPARISONS(rocprofiler_counter_config_id_t)
#else
ROCPROFILER_SDK_COMPARISONS(rocprofiler_profile_config_id_t)
#endif
ROCPROFILER_SDK_COMPARISONS(rocprofiler_callback_thread_t)
ROCPROFILER_SDK_COMPARISONS(const rocprofiler_agent_v0_t&)
ROCPROFILER_SDK_COMPARISONS(rocprofiler_dim3_t)
#if defined(ROCPROFILER_HAS_HSA)
ROCPROFILER_SDK_COMPARISONS(hsa_agent_t)
ROCPROFILER_SDK_COMPARISONS(hsa_signal_t)
ROCPROFILER_SDK_COMPARISONS(hsa_executable_t)
#endif

#undef ROCPROFILER_SDK_COMPARISONS
#undef ROCPROFILER_SDK_COMPARE

#endif  // ROCPROFILER_SDK_CXX_OPERATORS_HPP_
