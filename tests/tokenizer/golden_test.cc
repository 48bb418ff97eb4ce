// Against Hugging Face `tokenizers`: see tests/golden/tokenizer/generate.py.
#include <gtest/gtest.h>

#include "fixtures.h"

namespace dhs::test {
namespace {

class Golden : public testing::TestWithParam<const char*> {
 protected:
  const Tokenizer tokenizer_ = must_load(tokenizer_json(GetParam()));
};

TEST_P(Golden, encodes_every_text_to_the_same_tokens) {
  const std::vector<EncodeCase> cases = encode_cases(GetParam());
  ASSERT_GE(cases.size(), 2000u);
  for (const EncodeCase& c : cases) {
    const auto tokens = tokenizer_.encode(c.text);
    ASSERT_TRUE(tokens.ok()) << tokens.status() << " for '" << c.text << "'";
    EXPECT_EQ(*tokens, c.tokens) << "'" << c.text << "'";
  }
}

TEST_P(Golden, decodes_every_text_exactly) {
  for (const EncodeCase& c : encode_cases(GetParam())) {
    EXPECT_EQ(tokenizer_.decode(c.tokens, /*skip_special_tokens=*/false), c.decoded);
  }
}

TEST_P(Golden, treats_special_tokens_as_text_on_request) {
  const std::vector<EncodeCase> cases = plain_cases(GetParam());
  ASSERT_GE(cases.size(), 100u);
  for (const EncodeCase& c : cases) {
    const auto tokens = tokenizer_.encode(c.text, {.parse_special = false});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, c.tokens) << "'" << c.text << "'";
  }
}

TEST_P(Golden, decodes_tokens_that_are_not_utf8) {
  for (const DecodeCase& c : decode_cases(GetParam())) {
    EXPECT_EQ(tokenizer_.decode(c.tokens, /*skip_special_tokens=*/false), c.all);
    EXPECT_EQ(tokenizer_.decode(c.tokens, /*skip_special_tokens=*/true), c.without_special);
  }
}

TEST_P(Golden, streams_what_decode_gives_for_any_split) {
  for (const DecodeCase& c : decode_cases(GetParam())) {
    for (const size_t step : {1, 2, 3, 7}) {
      StreamingDetokenizer all(tokenizer_, /*skip_special_tokens=*/false);
      StreamingDetokenizer without_special(tokenizer_, /*skip_special_tokens=*/true);
      std::string all_text;
      std::string text;
      for (size_t i = 0; i < c.tokens.size(); i += step) {
        const auto part = std::span(c.tokens).subspan(i, std::min(step, c.tokens.size() - i));
        all_text += all.push(part);
        text += without_special.push(part);
      }
      EXPECT_EQ(all_text + all.finish(), c.all);
      EXPECT_EQ(text + without_special.finish(), c.without_special);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Golden, testing::Values("demo", "mixed_case", "staged"),
                         [](const auto& param) { return std::string(param.param); });

TEST(GoldenVariants, encode_to_the_same_tokens_with_every_component) {
  const std::string document = tokenizer_json("mixed_case");
  const std::vector<VariantCase> cases = variant_cases();
  ASSERT_GE(cases.size(), 80u);
  for (const VariantCase& c : cases) {
    const auto tokenizer = Tokenizer::from_json(with_patch(document, c.patch));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status() << " for " << c.patch;
    for (size_t i = 0; i < c.texts.size(); ++i) {
      const auto tokens = tokenizer->encode(c.texts[i]);
      ASSERT_TRUE(tokens.ok()) << tokens.status() << " for " << c.patch;
      EXPECT_EQ(*tokens, c.tokens[i]) << "'" << c.texts[i] << "' with " << c.patch;
    }
    const auto tokens = tokenizer->encode(c.texts[1], {.add_special_tokens = true});
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(*tokens, c.with_special) << c.patch;
  }
}

}  // namespace
}  // namespace dhs::test
