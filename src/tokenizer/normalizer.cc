#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "dhisparse/base.h"
#include "tokenizer/utf8.h"

namespace dhs {
namespace {

using CodePoint = utf8proc_int32_t;
constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
constexpr size_t kMaxDecomposition = 32;  // Unicode's longest canonical one is 4

// Below U+0300 nothing decomposes under composition, is a combining mark or joins what precedes it.
bool is_high_lead(char byte) { return static_cast<unsigned char>(byte) >= 0xCC; }

size_t find_high(std::string_view text, size_t from) {
  return std::find_if(text.begin() + from, text.end(), is_high_lead) - text.begin();
}

int combining_class(CodePoint c) { return utf8proc_get_property(c)->combining_class; }

void append_decomposed(CodePoint c, std::vector<CodePoint>& out) {
  std::array<CodePoint, kMaxDecomposition> parts;
  int last_boundary_class = 0;
  const auto num_parts =
      utf8proc_decompose_char(c, parts.data(), parts.size(), kOptions, &last_boundary_class);
  DHS_CHECK(num_parts > 0 && num_parts <= static_cast<utf8proc_ssize_t>(parts.size()),
            "decomposition of code point ", c, " gave ", num_parts);
  out.insert(out.end(), parts.begin(), parts.begin() + num_parts);
}

// utf8proc's own ordering is a bubble sort: quadratic in a run of marks, which users choose.
void order_marks(std::vector<CodePoint>& text) {
  const auto is_starter = [](CodePoint c) { return combining_class(c) == 0; };
  auto begin = text.begin();
  while (true) {
    begin = std::find_if_not(begin, text.end(), is_starter);
    if (begin == text.end()) return;
    const auto end = std::find_if(begin, text.end(), is_starter);
    std::stable_sort(begin, end, [](CodePoint a, CodePoint b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

void append_composed(std::string_view text, std::vector<CodePoint>& buffer, std::string& out) {
  buffer.clear();
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    append_decomposed(static_cast<CodePoint>(c.code_point), buffer);
    i += c.num_bytes;
  }
  order_marks(buffer);
  const auto length = utf8proc_normalize_utf32(
      buffer.data(), static_cast<utf8proc_ssize_t>(buffer.size()), kOptions);
  DHS_CHECK(length >= 0, "composition failed with ", length);
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_utf8(static_cast<char32_t>(buffer[i]), out);
  }
}

}  // namespace

bool is_plainly_nfc(std::string_view text) { return find_high(text, 0) == text.size(); }

std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<CodePoint> buffer;
  for (size_t i = 0; i < text.size();) {
    const size_t high = find_high(text, i);
    // What is high may join the one plain character before it, and no other.
    const bool joins_plain = high > i && high < text.size();
    const size_t begin = joins_plain ? previous_utf8(text, high) : high;
    out.append(text.substr(i, begin - i));
    size_t end = high;
    while (end < text.size() && is_high_lead(text[end])) end += decode_utf8(text, end).num_bytes;
    append_composed(text.substr(begin, end - begin), buffer, out);
    i = end;
  }
  return out;
}

}  // namespace dhs
