#include "tokenizer/utf8.h"

#include <algorithm>
#include <cstring>

namespace dhs {
namespace {

enum class Form { kWhole, kTruncated, kInvalid };

// What stands at the start of a byte string. kTruncated: all bytes there are, and more could make a
// character of them. kInvalid: num_bytes is the maximal invalid part.
struct Sequence {
  Form form;
  size_t num_bytes;
};

struct SecondByteRange {
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

// The lead byte decides what the second byte may be; that excludes overlong forms and surrogates.
SecondByteRange second_byte_range(uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {};
  }
}

size_t length_by_lead(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

Sequence classify(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const size_t length = length_by_lead(lead);
  if (length == 0) return {Form::kInvalid, 1};
  SecondByteRange range = second_byte_range(lead);
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Form::kTruncated, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < range.low || byte > range.high) return {Form::kInvalid, i};
    range = {};
  }
  return {Form::kWhole, length};
}

size_t num_leading_ascii(std::string_view bytes) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t i = 0;
  for (uint64_t word; i + sizeof(word) <= bytes.size(); i += sizeof(word)) {
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    if ((word & kHighBits) != 0) break;
  }
  while (i < bytes.size() && static_cast<uint8_t>(bytes[i]) < 0x80) ++i;
  return i;
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view bytes) {
  size_t i = 0;
  while (true) {
    i += num_leading_ascii(bytes.substr(i));
    if (i == bytes.size()) return std::nullopt;
    const Sequence sequence = classify(bytes.substr(i));
    if (sequence.form != Form::kWhole) return i;
    i += sequence.num_bytes;
  }
}

Utf8Char decode_utf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[offset + i]); };
  const size_t length = length_by_lead(byte(0));
  if (length == 1) return {byte(0), 1};
  char32_t code_point = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte(i) & 0x3Fu);
  return {code_point, length};
}

size_t previous_utf8(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0u) == 0x80u) --begin;
  return begin;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto continuation = [&](int shift) { put(0x80u | ((code_point >> shift) & 0x3Fu)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0u | code_point >> 6);
    continuation(0);
  } else if (code_point < 0x10000) {
    put(0xE0u | code_point >> 12);
    continuation(6);
    continuation(0);
  } else {
    put(0xF0u | code_point >> 18);
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

size_t append_lossy_utf8(std::string_view bytes, bool is_last, std::string& out) {
  size_t i = 0;
  while (i < bytes.size()) {
    const Sequence sequence = classify(bytes.substr(i));
    if (sequence.form == Form::kTruncated && !is_last) break;
    if (sequence.form == Form::kWhole) {
      out.append(bytes.substr(i, sequence.num_bytes));
    } else {
      out.append(kReplacementCharacter);
    }
    i += sequence.num_bytes;
  }
  return i;
}

bool is_white_space(char32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D);
  if (c < 0x1680) return c == 0x85 || c == 0xA0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace dhs
