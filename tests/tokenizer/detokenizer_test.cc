#include <gtest/gtest.h>

#include <random>

#include "fixtures.h"
#include "tokenizer/utf8.h"

namespace dhs::test {
namespace {

class Detokenizer : public testing::Test {
 protected:
  const Tokenizer tokenizer_ = must_load(tiny_json());
  const std::string replacement_{kReplacementCharacter};
};

TEST_F(Detokenizer, holds_bytes_back_until_the_character_is_whole) {
  StreamingDetokenizer detokenizer(tokenizer_);
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push(0xBD), "");
  EXPECT_EQ(detokenizer.push(0xA0), "\u4F60");
  EXPECT_EQ(detokenizer.push('!'), "!");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST_F(Detokenizer, replaces_bytes_as_soon_as_they_cannot_become_a_character) {
  StreamingDetokenizer detokenizer(tokenizer_);
  EXPECT_EQ(detokenizer.push(0x80), replacement_);
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push('a'), replacement_ + "a");
  EXPECT_EQ(detokenizer.push(0xE0), "");
  EXPECT_EQ(detokenizer.push(0x80), replacement_ + replacement_);
}

TEST_F(Detokenizer, gives_out_an_incomplete_tail_at_the_end_and_can_start_again) {
  StreamingDetokenizer detokenizer(tokenizer_);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.finish(), replacement_);
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push('a'), "a");
}

// A prompt may end in the first bytes of a character. The output is that of the generated tokens
// alone: nothing of the prompt leaks into it.
TEST_F(Detokenizer, starts_fresh_after_a_prompt_that_ends_inside_a_character) {
  StreamingDetokenizer detokenizer(tokenizer_);
  EXPECT_EQ(detokenizer.push(0xA0), replacement_);
  EXPECT_EQ(detokenizer.push('a'), "a");
}

TEST_F(Detokenizer, joins_a_character_around_a_skipped_special_token) {
  const TokenId special = *tokenizer_.token_to_id("<s>");
  StreamingDetokenizer skipping(tokenizer_);
  EXPECT_EQ(skipping.push(0xC3), "");
  EXPECT_EQ(skipping.push(special), "");
  EXPECT_EQ(skipping.push(0xA9), "\u00E9");
  StreamingDetokenizer showing(tokenizer_, /*skip_special_tokens=*/false);
  EXPECT_EQ(showing.push(0xC3), "");
  EXPECT_EQ(showing.push(special), replacement_ + "<s>");
}

TEST_F(Detokenizer, ignores_ids_that_name_no_token) {
  StreamingDetokenizer detokenizer(tokenizer_);
  EXPECT_EQ(detokenizer.push(-1), "");
  EXPECT_EQ(detokenizer.push(tokenizer_.vocab_size()), "");
  EXPECT_EQ(tokenizer_.decode(std::vector<TokenId>{'a', -5, 1 << 30, 'b'}), "ab");
}

TEST_F(Detokenizer, gives_what_decode_gives_for_random_bytes_and_any_split) {
  std::mt19937 rng(5);
  // Mostly bytes that begin or continue characters of three and four bytes.
  const std::vector<TokenId> likely = {0xE0, 0xE4, 0xED, 0xF0, 0xF4, 0x80, 0x8F, 0x90,
                                       0x9F, 0xA0, 0xBF, 0xC3, 'a',  259,  256};
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> tokens;
    for (size_t n = rng() % 16; n > 0; --n) {
      tokens.push_back(rng() % 4 == 0 ? static_cast<TokenId>(rng() % 262)
                                      : likely[rng() % likely.size()]);
    }
    const bool skip = rng() % 2 == 0;
    StreamingDetokenizer detokenizer(tokenizer_, skip);
    std::string text;
    for (size_t i = 0; i < tokens.size();) {
      const size_t step = std::min<size_t>(1 + rng() % 4, tokens.size() - i);
      const std::string part = detokenizer.push(std::span(tokens).subspan(i, step));
      EXPECT_EQ(find_invalid_utf8(part), std::nullopt);
      text += part;
      i += step;
    }
    EXPECT_EQ(text + detokenizer.finish(), tokenizer_.decode(tokens, skip));
  }
}

}  // namespace
}  // namespace dhs::test
