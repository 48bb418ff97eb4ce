#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "dhisparse/base.h"
#include "tokenizer/byte_alphabet.h"

namespace dhs {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy_utf8(bytes, /*is_last=*/true, out);
  return out;
}

std::string replacements(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += kReplacementCharacter;
  return out;
}

bool is_scalar(char32_t c) { return c < 0xD800 || (c > 0xDFFF && c <= 0x10FFFF); }

TEST(Utf8, round_trips_every_scalar_value_and_refuses_surrogates) {
  for (char32_t c = 0; c <= 0x110000; ++c) {
    std::string bytes = "x";
    append_utf8(c, bytes);
    ASSERT_EQ(find_invalid_utf8(bytes).has_value(), !is_scalar(c)) << static_cast<uint32_t>(c);
    if (!is_scalar(c)) continue;
    const Utf8Char decoded = decode_utf8(bytes, 1);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.num_bytes, bytes.size() - 1);
    ASSERT_EQ(previous_utf8(bytes, bytes.size()), 1u);
  }
}

TEST(Utf8, finds_the_first_invalid_byte_behind_any_amount_of_text) {
  for (const std::string_view bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                                     "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5", "\xE4\xBD"}) {
    for (size_t num_before = 0; num_before < 20; ++num_before) {
      const std::string text = absl::StrCat(std::string(num_before, 'a'), "\xC3\xA9", to_absl(bad));
      EXPECT_EQ(find_invalid_utf8(text), num_before + 2) << testing::PrintToString(bad);
    }
  }
}

// The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8, replaces_each_maximal_invalid_part_once) {
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), absl::StrCat(replacements(8), "A"));
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), absl::StrCat(replacements(8), "A"));
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            absl::StrCat(replacements(5), "A", replacements(2), "B"));
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), absl::StrCat(replacements(4), "A"));
}

TEST(Utf8, leaves_only_a_tail_that_could_still_become_a_character) {
  std::string out;
  EXPECT_EQ(append_lossy_utf8("a\xE4\xBD", /*is_last=*/false, out), 1u);
  EXPECT_EQ(append_lossy_utf8("\xE0\x80", /*is_last=*/false, out), 2u);
  EXPECT_EQ(append_lossy_utf8("\xF0\x9F\x98", /*is_last=*/false, out), 0u);
  EXPECT_EQ(out, absl::StrCat("a", replacements(2)));
}

TEST(Utf8, white_space_is_the_unicode_property) {
  std::vector<uint32_t> found;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (is_white_space(c)) found.push_back(static_cast<uint32_t>(c));
  }
  EXPECT_EQ(found, (std::vector<uint32_t>{0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,
                                          0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                          0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                          0x2029, 0x202F, 0x205F, 0x3000}));
}

TEST(ByteAlphabet, spells_every_byte_as_one_printable_character_and_back) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(bytes_of_spelling(spell_bytes(all)), all);
  EXPECT_EQ(spell_byte(' '), "\u0120");
  EXPECT_EQ(spell_byte('\n'), "\u010A");
  EXPECT_EQ(spell_byte('A'), "A");
  EXPECT_EQ(spell_byte(0xAD), "\u0143");
  EXPECT_EQ(bytes_of_spelling("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\u0144"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("\u4F60"), std::nullopt);
}

}  // namespace
}  // namespace dhs
