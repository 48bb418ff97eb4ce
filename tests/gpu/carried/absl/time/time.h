// absl::Duration and absl::Time for machines without absl, as far as what is built there uses them.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace absl {

class Duration {
 public:
  constexpr Duration() = default;
  constexpr explicit Duration(double seconds) : seconds_(seconds) {}
  friend constexpr auto operator<=>(Duration, Duration) = default;
  friend constexpr Duration operator+(Duration a, Duration b) {
    return Duration(a.seconds_ + b.seconds_);
  }
  Duration& operator+=(Duration other) { return *this = *this + other; }
  friend constexpr double ToDoubleSeconds(Duration duration) { return duration.seconds_; }

 private:
  double seconds_ = 0;
};

constexpr double ToDoubleSeconds(Duration duration);
constexpr Duration Seconds(double count) { return Duration(count); }
constexpr Duration ZeroDuration() { return Duration(); }
constexpr Duration InfiniteDuration() { return Duration(std::numeric_limits<double>::infinity()); }

class Time {
 public:
  constexpr Time() = default;
  constexpr explicit Time(double seconds) : seconds_(seconds) {}
  friend constexpr auto operator<=>(Time, Time) = default;
  friend constexpr Duration operator-(Time a, Time b) { return Duration(a.seconds_ - b.seconds_); }

 private:
  double seconds_ = 0;
};

constexpr Time UnixEpoch() { return Time(); }
constexpr Time InfinitePast() { return Time(-std::numeric_limits<double>::infinity()); }

}  // namespace absl
