#include "src/config/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>

#include "dhisparse/base.h"
#include "dhisparse/config.h"
#include "src/config/suggest.h"

namespace dhs {
namespace {

struct Unit {
  std::string_view name;
  int64_t scale;
};

constexpr int64_t kKib = 1024;
constexpr int64_t kKb = 1000;

// A number without a unit is a number of bytes.
constexpr std::array<Unit, 10> kByteUnits = {{{"", 1},
                                              {"B", 1},
                                              {"KB", kKb},
                                              {"MB", kKb* kKb},
                                              {"GB", kKb* kKb* kKb},
                                              {"TB", kKb* kKb* kKb* kKb},
                                              {"KiB", kKib},
                                              {"MiB", kKib* kKib},
                                              {"GiB", kKib* kKib* kKib},
                                              {"TiB", kKib* kKib* kKib* kKib}}};

// In microseconds. There is no "" here: a bare 30 could be seconds or milliseconds.
constexpr std::array<Unit, 5> kTimeUnits = {
    {{"us", 1}, {"ms", 1000}, {"s", 1000000}, {"m", 60000000}, {"h", 3600000000}}};

// With six digits and the largest unit (TiB) the scaled fraction stays below 2^63.
constexpr size_t kMaxFractionDigits = 6;

size_t count_digits(std::string_view text) {
  const auto end =
      std::find_if_not(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return static_cast<size_t>(end - text.begin());
}

absl::Status malformed(const std::string& reason) { return absl::InvalidArgumentError(reason); }

// The scaled fraction, rounded down to a whole smallest unit.
int64_t scale_fraction(std::string_view digits, int64_t scale) {
  int64_t value = 0;
  int64_t divisor = 1;
  for (const char c : digits) {
    value = value * 10 + (c - '0');
    divisor *= 10;
  }
  return value * scale / divisor;
}

// The error is only the reason; the caller adds the value and the remedy.
absl::StatusOr<int64_t> parse_quantity(std::string_view text, std::span<const Unit> units) {
  const std::string_view whole_digits = text.substr(0, count_digits(text));
  if (whole_digits.empty()) return malformed("it does not start with a digit");
  if (whole_digits.size() > 1 && whole_digits[0] == '0') return malformed("it has a leading zero");
  text.remove_prefix(whole_digits.size());

  std::string_view fraction_digits;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction_digits = text.substr(0, count_digits(text));
    text.remove_prefix(fraction_digits.size());
    if (fraction_digits.empty() || fraction_digits.size() > kMaxFractionDigits) {
      return malformed(absl::StrCat("it has ", fraction_digits.size(),
                                    " digits after the point, 1 to ", kMaxFractionDigits,
                                    " are read"));
    }
  }

  const auto unit =
      std::find_if(units.begin(), units.end(), [text](const Unit& u) { return u.name == text; });
  if (unit == units.end()) {
    if (text.empty()) return malformed("it has no unit");
    return malformed(absl::StrCat(quote(text), " is not a unit"));
  }
  if (!fraction_digits.empty() && unit->scale == 1) {
    return malformed("it is a fraction of the smallest unit");
  }

  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t whole = 0;
  const auto parsed =
      std::from_chars(whole_digits.data(), whole_digits.data() + whole_digits.size(), whole);
  const int64_t fraction = scale_fraction(fraction_digits, unit->scale);
  if (parsed.ec != std::errc() || whole > (kMax - fraction) / unit->scale) {
    return malformed("it does not fit in 63 bits");
  }
  return whole * unit->scale + fraction;
}

std::string format_in(int64_t value, std::span<const Unit> units, std::string_view smallest) {
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    if (unit->scale == 1 || value < unit->scale || value % unit->scale != 0) continue;
    return absl::StrCat(value / unit->scale, to_absl(unit->name));
  }
  return absl::StrCat(value, to_absl(smallest));
}

}  // namespace

absl::StatusOr<int64_t> parse_bytes(std::string_view text) {
  absl::StatusOr<int64_t> bytes = parse_quantity(text, kByteUnits);
  if (bytes.ok()) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat(quote(text), " is not a size: ", bytes.status().message(),
                   "; write a number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 64MiB"));
}

absl::StatusOr<absl::Duration> parse_duration(std::string_view text) {
  if (text == "inf") return absl::InfiniteDuration();
  const absl::StatusOr<int64_t> microseconds = parse_quantity(text, kTimeUnits);
  if (microseconds.ok()) return absl::Microseconds(*microseconds);
  return absl::InvalidArgumentError(
      absl::StrCat(quote(text), " is not a duration: ", microseconds.status().message(),
                   "; write a number and us, ms, s, m or h, such as 30s, or inf"));
}

std::string format_bytes(int64_t bytes) {
  // Only the binary units: 64000000 is clearer than 64MB next to 64MiB.
  return format_in(bytes, std::span(kByteUnits).last(4), "");
}

std::string format_duration(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "inf";
  const int64_t microseconds = absl::ToInt64Microseconds(duration);
  if (microseconds == 0) return "0s";
  return format_in(microseconds, kTimeUnits, "us");
}

}  // namespace dhs
