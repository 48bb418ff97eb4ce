// absl::StatusOr for machines without absl: a value, or the status that says why there is none.
#pragma once

#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"

namespace absl {

template <class T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr() : status_(StatusCode::kUnknown, "") {}
  StatusOr(T value) : value_(std::move(value)) {}
  StatusOr(Status status) : status_(std::move(status)) {}
  template <class U>
  requires(std::convertible_to<U, T> && !std::same_as<std::remove_cvref_t<U>, T> &&
           !std::convertible_to<U, Status> && !std::same_as<std::remove_cvref_t<U>, StatusOr>)
      StatusOr(U&& value)
      : value_(std::forward<U>(value)) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return checked(); }
  const T& value() const& { return const_cast<StatusOr*>(this)->checked(); }
  T&& value() && { return std::move(checked()); }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(checked()); }
  T value_or(T fallback) const { return ok() ? *value_ : std::move(fallback); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &value(); }

 private:
  T& checked() {
    if (ok()) return *value_;
    std::fprintf(stderr, "a StatusOr has no value: %s\n", status_.ToString().c_str());
    std::abort();
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace absl
