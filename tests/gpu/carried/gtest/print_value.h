// How the values of a failed comparison are printed.
#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>
#include <sstream>
#include <string>
#include <type_traits>

namespace testing::internal {

template <class T>
concept Streamable = requires(std::ostream& out, const T& value) {
  out << value;
};
template <class T>
concept OptionalLike = requires(const T& value) {
  value.has_value();
  *value;
};
template <class T>
concept PairLike = requires(const T& value) {
  value.first;
  value.second;
};

template <class T>
std::string printed(const T& value);

template <class T>
std::string printed_elements(const T& values) {
  constexpr int kMostPrinted = 32;
  std::string text = "{";
  int count = 0;
  for (const auto& value : values) {
    if (count == kMostPrinted) return text + ", ...}";
    text += (count++ == 0 ? "" : ", ") + printed(value);
  }
  return text + "}";
}

template <class T>
std::string printed(const T& value) {
  using Plain = std::remove_cvref_t<T>;
  std::ostringstream out;
  if constexpr (std::same_as<Plain, std::nullptr_t>) {
    out << "nullptr";
  } else if constexpr (std::convertible_to<T, const char*>) {
    const char* text = value;
    out << (text == nullptr ? "nullptr" : text);
  } else if constexpr (std::same_as<Plain, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::integral<Plain> && sizeof(Plain) == 1) {
    out << static_cast<int>(value);
  } else if constexpr (std::is_enum_v<Plain>) {
    out << static_cast<long long>(value);
  } else if constexpr (std::floating_point<Plain>) {
    out.precision(9);
    out << value;
  } else if constexpr (Streamable<Plain>) {
    out << value;
  } else if constexpr (std::ranges::range<const Plain>) {
    out << printed_elements(value);
  } else if constexpr (OptionalLike<Plain>) {
    out << (value.has_value() ? printed(*value) : "nothing");
  } else if constexpr (PairLike<Plain>) {
    out << "(" << printed(value.first) << ", " << printed(value.second) << ")";
  } else {
    out << sizeof(Plain) << " bytes";
  }
  return out.str();
}

}  // namespace testing::internal
