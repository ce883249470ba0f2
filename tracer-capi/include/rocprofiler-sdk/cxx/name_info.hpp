// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Names of kinds and of their operations, as C++ has them at hand. Source compatible with the header of the same name of
// ROCprofiler-SDK 0.5.

#ifndef ROCPROFILER_SDK_CXX_NAME_INFO_HPP_
#define ROCPROFILER_SDK_CXX_NAME_INFO_HPP_

#include <rocprofiler-sdk/buffer_tracing.h>
#include <rocprofiler-sdk/callback_tracing.h>
#include <rocprofiler-sdk/fwd.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rocprofiler {
namespace sdk {
namespace utility {

// The names of a kind and of its operations. They are kept as `ValueT`: std::string_view, std::string or const char*.
template <typename EnumT, typename ValueT = std::string_view>
struct name_info_impl {
  static_assert(std::is_constructible<ValueT, const char*>::value, "names are made from const char*");

  using enum_type = EnumT;
  using value_type = ValueT;
  // A string is not copied.
  using return_type =
      std::conditional_t<std::is_trivially_copyable<ValueT>::value, ValueT, const ValueT&>;
  using item_type = std::pair<rocprofiler_tracing_operation_t, const value_type*>;
  using item_array_t = std::vector<item_type>;

  return_type operator()() const { return name; }
  return_type operator()(size_t operation) const { return operations.at(operation); }
  return_type operator[](size_t operation) const { return operations.at(operation); }

  // Operations by number. Pointers into this.
  item_array_t items() const {
    item_array_t all;
    all.reserve(operations.size());
    for (const auto& one : operations) {
      all.emplace_back(static_cast<rocprofiler_tracing_operation_t>(all.size()), &one);
    }
    return all;
  }

  EnumT value = static_cast<EnumT>(0);
  value_type name = value_type("");
  std::vector<value_type> operations = {};
};

// Those of all kinds, by number.
template <typename EnumT, typename ValueT = std::string_view>
struct name_info {
  using value_type = name_info_impl<EnumT, ValueT>;
  using enum_type = EnumT;
  using return_type = typename value_type::return_type;
  using item_type = const value_type*;
  using item_array_t = std::vector<item_type>;

  void emplace(EnumT kind, const char* name) {
    auto& known = of(kind);
    known.value = kind;
    known.name = ValueT(name);
  }

  void emplace(EnumT kind, rocprofiler_tracing_operation_t operation, const char* name) {
    auto& names = of(kind).operations;
    const auto place = static_cast<size_t>(operation);
    if (names.size() <= place) names.resize(place + 1, ValueT(""));
    names[place] = ValueT(name);
  }

  return_type at(EnumT kind) const { return all_.at(kind).name; }
  return_type at(EnumT kind, rocprofiler_tracing_operation_t operation) const {
    return all_.at(kind).operations.at(static_cast<size_t>(operation));
  }

  // Pointers into this.
  item_array_t items() const {
    item_array_t all;
    all.reserve(all_.size());
    for (const auto& one : all_) all.emplace_back(&one);
    return all;
  }

  auto size() const { return all_.size(); }
  auto begin() { return all_.begin(); }
  auto begin() const { return all_.begin(); }
  auto end() { return all_.end(); }
  auto end() const { return all_.end(); }

  value_type& operator[](size_t kind) { return all_.at(kind); }
  const value_type& operator[](size_t kind) const { return all_.at(kind); }

 private:
  value_type& of(EnumT kind) {
    const auto place = static_cast<size_t>(kind);
    if (all_.size() <= place) all_.resize(place + 1);
    return all_[place];
  }

  std::vector<value_type> all_ = {};
};

// The names that these functions tell: of each kind, and of each of its operations.
template <typename EnumT, typename ValueT, auto EachKind, auto NameOfKind, auto EachOperation, auto NameOfOperation>
name_info<EnumT, ValueT> names_of() {
  using all_t = name_info<EnumT, ValueT>;
  all_t all;
  EachKind(
      [](EnumT kind, void* data) {
        const char* name = nullptr;
        if (NameOfKind(kind, &name, nullptr) == ROCPROFILER_STATUS_SUCCESS && name) {
          static_cast<all_t*>(data)->emplace(kind, name);
        }
        EachOperation(
            kind,
            [](EnumT of, rocprofiler_tracing_operation_t operation, void* names) {
              const char* word = nullptr;
              if (NameOfOperation(of, operation, &word, nullptr) == ROCPROFILER_STATUS_SUCCESS && word) {
                static_cast<all_t*>(names)->emplace(of, operation, word);
              }
              return 0;
            },
            data);
        return 0;
      },
      &all);
  return all;
}

}  // namespace utility

template <typename ValueT = std::string_view>
using callback_name_info_t = utility::name_info<rocprofiler_callback_tracing_kind_t, ValueT>;

template <typename ValueT = std::string_view>
using buffer_name_info_t = utility::name_info<rocprofiler_buffer_tracing_kind_t, ValueT>;

using callback_name_info = callback_name_info_t<std::string_view>;
using buffer_name_info = buffer_name_info_t<std::string_view>;

// The names of everything that callbacks can be called for.
template <typename ValueT = std::string_view>
callback_name_info_t<ValueT> get_callback_tracing_names() {
  return utility::names_of<rocprofiler_callback_tracing_kind_t, ValueT, rocprofiler_iterate_callback_tracing_kinds,
                           rocprofiler_query_callback_tracing_kind_name,
                           rocprofiler_iterate_callback_tracing_kind_operations,
                           rocprofiler_query_callback_tracing_kind_operation_name>();
}

// The names of everything that records can be written of.
template <typename ValueT = std::string_view>
buffer_name_info_t<ValueT> get_buffer_tracing_names() {
  return utility::names_of<rocprofiler_buffer_tracing_kind_t, ValueT, rocprofiler_iterate_buffer_tracing_kinds,
                           rocprofiler_query_buffer_tracing_kind_name,
                           rocprofiler_iterate_buffer_tracing_kind_operations,
                           rocprofiler_query_buffer_tracing_kind_operation_name>();
}

}  // namespace sdk
}  // namespace rocprofiler

#endif  // ROCPROFILER_SDK_CXX_NAME_INFO_HPP_
