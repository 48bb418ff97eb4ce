#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace dhs {
namespace {

constexpr int kNumBytes = 256;
constexpr int kNumSpellings = 324;  // one more than the largest code point, U+0143
constexpr int16_t kNoByte = -1;

struct Alphabet {
  std::array<std::string, kNumBytes> spelling;
  std::array<int16_t, kNumSpellings> byte_of;
};

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(kNoByte);
  char32_t next_replacement = 0x100;
  for (int byte = 0; byte < kNumBytes; ++byte) {
    const char32_t code_point =
        stands_for_itself(byte) ? static_cast<char32_t>(byte) : next_replacement++;
    append_utf8(code_point, alphabet.spelling[byte]);
    alphabet.byte_of[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet alphabet = make_alphabet();
  return alphabet;
}

}  // namespace

std::string_view spell_byte(unsigned char byte) { return alphabet().spelling[byte]; }

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) spelling += spell_byte(static_cast<unsigned char>(byte));
  return spelling;
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const Utf8Char c = decode_utf8(spelling, i);
    if (c.code_point >= kNumSpellings) return std::nullopt;
    const int16_t byte = alphabet().byte_of[c.code_point];
    if (byte == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    i += c.num_bytes;
  }
  return bytes;
}

}  // namespace dhs
