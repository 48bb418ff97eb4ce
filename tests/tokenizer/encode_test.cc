#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "fixtures.h"

namespace dhs::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<TokenId> must_encode(const Tokenizer& tokenizer, std::string_view text,
                                 const EncodeOptions& options = {}) {
  const auto tokens = tokenizer.encode(text, options);
  DHS_CHECK(tokens.ok(), tokens.status().ToString());
  return *tokens;
}

constexpr const char* kTemplate = R"({"post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "</s>", "type_id": 0}}],
  "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [259], "tokens": ["<s>"]},
                                 "</s>": {"id": "</s>", "ids": [260], "tokens": ["</s>"]}}}})";

TEST(Encode, adds_special_tokens_only_on_request) {
  const Tokenizer tokenizer = must_load(tiny_json(), kTemplate);
  EXPECT_THAT(must_encode(tokenizer, "abc"), ElementsAre(258));
  EXPECT_THAT(must_encode(tokenizer, "abc", {.add_special_tokens = true}),
              ElementsAre(259, 258, 260));
  EXPECT_THAT(must_encode(tokenizer, "", {.add_special_tokens = true}), ElementsAre(259, 260));
}

TEST(Encode, adds_the_tokens_of_tokenizer_config_once) {
  const std::string config = R"({"add_bos_token": true, "bos_token": {"content": "<s>"},
                                 "add_eos_token": true, "eos_token": "</s>"})";
  for (const char* patch : {"{}", kTemplate}) {
    const auto tokenizer = Tokenizer::from_json(with_patch(tiny_json(), patch), config);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_THAT(must_encode(*tokenizer, "a", {.add_special_tokens = true}),
                ElementsAre(259, 'a', 260));
    EXPECT_THAT(must_encode(*tokenizer, "a"), ElementsAre('a'));
  }
}

TEST(Encode, finds_special_tokens_in_text_unless_told_not_to) {
  const Tokenizer tokenizer = must_load(tiny_json());
  EXPECT_THAT(must_encode(tokenizer, "a<s>b"), ElementsAre('a', 259, 'b'));
  EXPECT_THAT(must_encode(tokenizer, "a<s>b", {.parse_special = false}),
              ElementsAre('a', '<', 's', '>', 'b'));
}

TEST(Encode, refuses_invalid_utf8_with_the_offset) {
  const Tokenizer tokenizer = must_load(tiny_json());
  for (const auto& [text, offset] :
       {std::pair("abc\xFF", "byte 3"), std::pair("\xE4\xBD", "byte 0"),
        std::pair("a\xED\xA0\x80", "byte 1")}) {
    const absl::Status status = tokenizer.encode(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(offset));
  }
}

TEST(Encode, refuses_text_over_the_limit) {
  const Tokenizer tokenizer = must_load(tiny_json());
  EXPECT_TRUE(tokenizer.encode("abc", {.max_text_bytes = 3}).ok());
  const absl::Status status = tokenizer.encode("abcd", {.max_text_bytes = 3}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("4 bytes; the limit is 3"));
}

TEST(Encode, refuses_a_piece_over_the_limit_and_takes_one_at_it) {
  const Tokenizer tokenizer = must_load(tiny_json());
  const std::string longest(Tokenizer::kMaxPieceBytes, 'x');
  EXPECT_EQ(must_encode(tokenizer, longest).size(), longest.size());
  const absl::Status status = tokenizer.encode(longest + "x").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("without a place to split"));
}

TEST(Encode, gives_a_repeated_word_the_same_tokens_every_time) {
  const Tokenizer tokenizer = must_load(tokenizer_json("demo"));
  const std::vector<TokenId> once = must_encode(tokenizer, " hello world,");
  std::string text;
  std::vector<TokenId> expected;
  for (int i = 0; i < 100; ++i) {
    text += " hello world,";
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_EQ(must_encode(tokenizer, text), expected);
}

// Work that grows with the square of the text does not finish: the test's time-out is the check.
TEST(Encode, copes_with_hostile_text) {
  const size_t size = size_t{1} << 20;
  const std::vector<std::string> units = {"a",
                                          " ",
                                          "\n",
                                          " \n",
                                          "1",
                                          "\u4F60",
                                          "\u0307\u0323",
                                          "<|",
                                          "<|user|",
                                          "[gMASK",
                                          "'",
                                          "'l",
                                          "\t ",
                                          "_-",
                                          std::string(1, '\0'),
                                          "\u200D",
                                          "\U0001F468\u200D",
                                          "<|user|>",
                                          "a\u0301",
                                          "\r",
                                          "S",
                                          "\u017F'"};
  for (const char* name : {"demo", "mixed_case", "staged"}) {
    const Tokenizer tokenizer = must_load(tokenizer_json(name));
    for (const std::string& unit : units) {
      std::string text;
      while (text.size() + unit.size() <= size) text += unit;
      const auto tokens = tokenizer.encode(text);
      ASSERT_TRUE(tokens.ok()) << tokens.status() << " for '" << unit << "' and " << name;
      const std::string expected = std::string_view(name) == "mixed_case" ? "" : text;
      if (!expected.empty()) {
        EXPECT_TRUE(tokenizer.decode(*tokens, /*skip_special_tokens=*/false) == expected) << unit;
      }
    }
  }
}

TEST(Encode, may_be_called_from_several_threads) {
  const Tokenizer tokenizer = must_load(tokenizer_json("mixed_case"));
  const std::vector<std::string> texts = golden_texts();
  std::vector<std::vector<TokenId>> expected;
  for (const std::string& text : texts) expected.push_back(must_encode(tokenizer, text));
  std::vector<std::thread> threads;
  std::array<size_t, 4> num_different{};
  for (size_t& different : num_different) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) {
        different += must_encode(tokenizer, texts[i]) != expected[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(num_different, testing::Each(0u));
}

TEST(Vocabulary, answers_for_every_id_and_for_none) {
  const Tokenizer tokenizer = must_load(tiny_json());
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_EQ(tokenizer.token_bytes(0xE4), "\xE4");
  EXPECT_EQ(tokenizer.token_bytes(256), " a");
  EXPECT_EQ(tokenizer.token_bytes(259), "<s>");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(261), "");
  EXPECT_TRUE(tokenizer.is_special(260));
  EXPECT_FALSE(tokenizer.is_special(256));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(261));
  EXPECT_EQ(tokenizer.token_to_id("</s>"), 260);
  EXPECT_EQ(tokenizer.token_to_id("\u0120a"), 256);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
}

}  // namespace
}  // namespace dhs::test
