// Sizes and durations as text. The parsers are public: parse_bytes, parse_duration.
#pragma once

#include <absl/time/time.h>

#include <cstdint>
#include <string>

namespace dhs {

// The shortest exact text in binary units: 64MiB, 1536KiB, 1000. `bytes` is not negative.
std::string format_bytes(int64_t bytes);

// The largest unit that is exact: 2m, 1500ms, inf. Not negative; whole microseconds.
std::string format_duration(absl::Duration duration);

}  // namespace dhs
