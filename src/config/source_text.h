// The bytes of a configuration file, before YAML.
#pragma once

#include <absl/status/statusor.h>

#include <compare>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dhs {

// 1-based; columns count bytes.
struct SourcePosition {
  int line = 1;
  int column = 1;
  friend auto operator<=>(const SourcePosition&, const SourcePosition&) = default;
};

inline constexpr size_t kMaxConfigFileBytes = size_t{1} << 20;

// NOT_FOUND when the file cannot be opened or read; INVALID_ARGUMENT above kMaxConfigFileBytes.
absl::StatusOr<std::string> read_source(const std::string& path);

struct TextProblem {
  SourcePosition position;
  std::string message;
};

struct TextCheck {
  std::vector<TextProblem> problems;  // the first of each line, in order
  bool readable = true;  // false: the structure cannot be trusted, parsing it would add noise
};

bool is_utf8(std::string_view text);

// Tabs, control characters (the YAML parser would take 0x04 for the end) and bytes outside UTF-8.
TextCheck check_text(std::string_view text);

}  // namespace dhs
