// UTF-8: validation, replacement of what is invalid, single characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dhs {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Byte offset of the first byte that is not part of a well-formed character; nullopt if all are.
// Surrogates, overlong forms and values above U+10FFFF are not well-formed.
std::optional<size_t> find_invalid_utf8(std::string_view bytes);

struct Utf8Char {
  char32_t code_point = 0;
  size_t num_bytes = 0;
};

// The character at `offset` of valid UTF-8; `offset` is less than the size.
Utf8Char decode_utf8(std::string_view text, size_t offset);

// The offset of the character that ends at `end` (greater than 0) of valid UTF-8.
size_t previous_utf8(std::string_view text, size_t end);

void append_utf8(char32_t code_point, std::string& out);

// Appends `bytes` to `out` with every maximal invalid part (Unicode 3.9, "maximal subpart")
// replaced by U+FFFD. With `is_last` false a tail that more bytes could complete is left alone.
// Returns the number of bytes consumed: all of them if `is_last`, else at most three are left.
size_t append_lossy_utf8(std::string_view bytes, bool is_last, std::string& out);

// The White_Space property, which has not changed since Unicode 6.3.
bool is_white_space(char32_t code_point);

}  // namespace dhs
