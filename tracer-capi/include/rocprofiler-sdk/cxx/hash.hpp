// SPDX-License-Identifier: MIT OR Apache-2.0
//
// std::hash of handles. Source compatible with the header of the same name of ROCprofiler-SDK 0.5.

#ifndef ROCPROFILER_SDK_CXX_HASH_HPP_
#define ROCPROFILER_SDK_CXX_HASH_HPP_

#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/internal_threading.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace rocprofiler {
namespace sdk {
namespace hash {

template <typename T>
struct handle_hasher {
  static_assert(sizeof(T) == sizeof(uint64_t), "a handle and nothing else");
  size_t operator()(T value) const { return std::hash<uint64_t>()(value.handle); }
};

}  // namespace hash
}  // namespace sdk
}  // namespace rocprofiler

#define ROCPROFILER_SDK_HASH_OF(TYPE) \
  template <>                         \
  struct hash<TYPE> : public ::rocprofiler::sdk::hash::handle_hasher<TYPE> {};

namespace std {
ROCPROFILER_SDK_HASH_OF(rocprofiler_context_id_t)
ROCPROFILER_SDK_HASH_OF(rocprofiler_agent_id_t)
ROCPROFILER_SDK_HASH_OF(rocprofiler_queue_id_t)
ROCPROFILER_SDK_HASH_OF(rocprofiler_buffer_id_t)
ROCPROFILER_SDK_HASH_OF(rocprofiler_counter_id_t)
#if ROCPROFILER_SDK_INTERFACE >= 1
ROCPROFILER_SDK_HASH_OF(rocprofiler_counter_config_id_t)
#else
ROCPROFILER_SDK_HASH_OF(rocprofiler_profile_config_id_t)
#endif
ROCPROFILER_SDK_HASH_OF(rocprofiler_callback_thread_t)
#if defined(ROCPROFILER_HAS_HSA)
ROCPROFILER_SDK_HASH_OF(hsa_agent_t)
ROCPROFILER_SDK_HASH_OF(hsa_signal_t)
ROCPROFILER_SDK_HASH_OF(hsa_executable_t)
#endif
}  // namespace std

#undef ROCPROFILER_SDK_HASH_OF

#endif  // ROCPROFILER_SDK_CXX_HASH_HPP_
