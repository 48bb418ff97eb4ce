// absl::Duration for machines without absl, as far as configuration structs hold one.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace absl {

class Duration {
 public:
  constexpr Duration() = default;
  constexpr explicit Duration(int64_t microseconds) : microseconds_(microseconds) {}
  friend constexpr auto operator<=>(Duration, Duration) = default;

 private:
  int64_t microseconds_ = 0;
};

constexpr Duration Seconds(int64_t count) { return Duration(count * 1'000'000); }
constexpr Duration InfiniteDuration() { return Duration(std::numeric_limits<int64_t>::max()); }

}  // namespace absl
