// The headers for C++: names of kinds and operations, hashes, comparisons.
#include <rocprofiler-sdk/cxx/hash.hpp>
#include <rocprofiler-sdk/cxx/name_info.hpp>
#include <rocprofiler-sdk/cxx/operators.hpp>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "check.h"

// Those that C asks for one by one are those that C++ has.
template <typename Names, typename Kind, typename Name, typename Operation>
void expect(const Names& names, Kind last, Name name, Operation operation) {
  CHECK(names.size() == static_cast<size_t>(last));
  size_t kinds = 0, operations = 0;
  for (const auto& kind : names) {
    const char* word = nullptr;
    CHECK(name(kind.value, &word, nullptr) == ROCPROFILER_STATUS_SUCCESS);
    CHECK(kind() == word && names.at(kind.value) == word && names[kinds].name == word);
    for (const auto& item : kind.items()) {
      CHECK(operation(kind.value, item.first, &word, nullptr) == ROCPROFILER_STATUS_SUCCESS);
      CHECK(*item.second == word && kind[static_cast<size_t>(item.first)] == word);
      CHECK(names.at(kind.value, item.first) == word);
      ++operations;
    }
    ++kinds;
  }
  CHECK(names.items().size() == kinds && operations > 600);
}

int main() {
  expect(rocprofiler::sdk::get_buffer_tracing_names(), ROCPROFILER_BUFFER_TRACING_LAST,
         rocprofiler_query_buffer_tracing_kind_name, rocprofiler_query_buffer_tracing_kind_operation_name);
  expect(rocprofiler::sdk::get_callback_tracing_names<std::string>(), ROCPROFILER_CALLBACK_TRACING_LAST,
         rocprofiler_query_callback_tracing_kind_name, rocprofiler_query_callback_tracing_kind_operation_name);
  const auto names = rocprofiler::sdk::get_buffer_tracing_names<const char*>();
  CHECK(std::strcmp(names.at(ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH), "KERNEL_DISPATCH") == 0);

  const rocprofiler_agent_id_t first = {1}, second = {2};
  CHECK(first < second && first <= second && first != second && !(first == second) && second > first && second >= first);
  CHECK(!(first > first) && first >= first);
  std::unordered_map<rocprofiler_agent_id_t, int> by_agent = {{first, 10}, {second, 20}};
  CHECK(by_agent.at(second) == 20);
  const std::map<rocprofiler_context_id_t, int> by_context = {{{7}, 70}};
  CHECK(by_context.at(rocprofiler_context_id_t{7}) == 70);
  const std::unordered_map<rocprofiler_counter_id_t, int> by_counter = {{{3}, 30}};
  CHECK(by_counter.at(rocprofiler_counter_id_t{3}) == 30);
#if ROCPROFILER_SDK_INTERFACE >= 1
  const std::map<rocprofiler_counter_config_id_t, int> by_config = {{{4}, 40}};
#else
  const std::map<rocprofiler_profile_config_id_t, int> by_config = {{{4}, 40}};
#endif
  CHECK(by_config.begin()->second == 40);
  // By how many there are, then by each.
  const std::set<rocprofiler_dim3_t> sizes = {{2, 3, 1}, {8, 1, 1}, {1, 6, 1}, {2, 3, 1}};
  CHECK(sizes.size() == 3 && sizes.begin()->y == 6 && sizes.rbegin()->x == 8);
#if defined(ROCPROFILER_HAS_HSA)
  const std::unordered_map<hsa_agent_t, int> by_hsa = {{{5}, 50}};
  CHECK(by_hsa.at(hsa_agent_t{5}) == 50);
#endif
}
