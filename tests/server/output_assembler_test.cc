#include "server/output_assembler.h"

#include <gtest/gtest.h>

#include "byte_tokenizer.h"
#include "fake_engine.h"

namespace dhs {
namespace {

std::string bytes_of(const std::vector<TokenOutput>& tokens) {
  std::string bytes;
  for (const TokenOutput& token : tokens) bytes += static_cast<char>(token.token);
  return bytes;
}

class OutputAssemblerTest : public ::testing::Test {
 protected:
  OutputAssembler make(const std::vector<std::string>& stops, bool include_stop = false) {
    auto matcher = StopMatcher::create(stops, {.include_stop_in_output = include_stop});
    DHS_CHECK(matcher.ok(), matcher.status().ToString());
    return {StreamingDetokenizer(tokenizer_), *std::move(matcher), !stops.empty()};
  }

  Tokenizer tokenizer_ = byte_tokenizer();
};

TEST_F(OutputAssemblerTest, gives_out_tokens_with_their_text) {
  OutputAssembler assembler = make({});
  const OutputDelta delta = assembler.push(tokens_of("abc"));
  EXPECT_EQ(delta.text, "abc");
  EXPECT_EQ(bytes_of(delta.tokens), "abc");
  EXPECT_TRUE(assembler.finish().empty());
}

TEST_F(OutputAssemblerTest, holds_back_text_but_no_token_of_half_a_character) {
  OutputAssembler assembler = make({});
  OutputDelta delta = assembler.push(tokens_of("\xe2\x82"));
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(bytes_of(delta.tokens), "\xe2\x82");
  delta = assembler.push(tokens_of("\xac"));
  EXPECT_EQ(delta.text, "\xe2\x82\xac");
}

TEST_F(OutputAssemblerTest, makes_a_cut_character_whole_at_the_end) {
  OutputAssembler assembler = make({"stop"});
  EXPECT_EQ(assembler.push(tokens_of("a\xe2\x82")).text, "a");
  const OutputDelta delta = assembler.finish();
  EXPECT_EQ(delta.text, "\xef\xbf\xbd");
  EXPECT_EQ(bytes_of(delta.tokens), "\xe2\x82");
}

TEST_F(OutputAssemblerTest, holds_back_tokens_that_may_belong_to_a_stop_string) {
  OutputAssembler assembler = make({"END"});
  OutputDelta delta = assembler.push(tokens_of("abE"));
  EXPECT_EQ(delta.text, "ab");
  EXPECT_EQ(bytes_of(delta.tokens), "ab");
  delta = assembler.push(tokens_of("N"));
  EXPECT_TRUE(delta.empty());
  delta = assembler.push(tokens_of("x"));
  EXPECT_EQ(delta.text, "ENx");
  EXPECT_EQ(bytes_of(delta.tokens), "ENx");
}

TEST_F(OutputAssemblerTest, cuts_text_and_tokens_before_a_stop_string) {
  OutputAssembler assembler = make({"END"});
  std::string text = assembler.push(tokens_of("abE")).text;
  const OutputDelta delta = assembler.push(tokens_of("ND and more"));
  EXPECT_EQ(text + delta.text, "ab");
  EXPECT_TRUE(delta.tokens.empty());
  ASSERT_TRUE(assembler.match());
  EXPECT_EQ(assembler.match()->begin_byte, 2);
  EXPECT_TRUE(assembler.push(tokens_of("later")).empty());
  EXPECT_TRUE(assembler.finish().empty());
}

TEST_F(OutputAssemblerTest, cuts_after_a_stop_string_that_is_to_be_included) {
  OutputAssembler assembler = make({"END"}, true);
  OutputDelta delta = assembler.push(tokens_of("abENDcd"));
  EXPECT_EQ(delta.text, "abEND");
  EXPECT_EQ(bytes_of(delta.tokens), "abEND");
}

TEST_F(OutputAssemblerTest, keeps_a_character_before_the_stop_whole) {
  OutputAssembler assembler = make({"END"});
  std::string text;
  std::string tokens;
  for (const char byte : std::string("\xe2\x82\xac"
                                     "END")) {
    const OutputDelta delta = assembler.push(tokens_of(std::string(1, byte)));
    text += delta.text;
    tokens += bytes_of(delta.tokens);
  }
  EXPECT_EQ(text, "\xe2\x82\xac");
  EXPECT_EQ(tokens, "\xe2\x82\xac");
}

TEST_F(OutputAssemblerTest, gives_out_a_token_without_text_at_the_end) {
  OutputAssembler assembler = make({"END"});
  TokenOutput end;
  end.token = 256;
  EXPECT_TRUE(assembler.push({end}).tokens.empty());
  const OutputDelta delta = assembler.finish();
  ASSERT_EQ(delta.tokens.size(), 1u);
  EXPECT_EQ(delta.tokens[0].token, 256);
  EXPECT_EQ(delta.text, "");
}

TEST_F(OutputAssemblerTest, gives_the_same_output_however_the_tokens_are_cut_into_calls) {
  const std::string text = "one EN\xc3\xa9 two ENEND three";
  for (size_t step = 1; step <= text.size(); ++step) {
    OutputAssembler assembler = make({"END"});
    std::string out;
    std::string tokens;
    for (size_t at = 0; at < text.size(); at += step) {
      const OutputDelta delta = assembler.push(tokens_of(text.substr(at, step)));
      out += delta.text;
      tokens += bytes_of(delta.tokens);
    }
    EXPECT_EQ(out, "one EN\xc3\xa9 two EN") << "in steps of " << step;
    EXPECT_EQ(tokens, "one EN\xc3\xa9 two EN") << "in steps of " << step;
  }
}

TEST_F(OutputAssemblerTest, counts_no_token_behind_the_one_that_completes_a_stop_string) {
  OutputAssembler assembler = make({"END"});
  assembler.push(tokens_of("ab"));
  EXPECT_EQ(assembler.num_tokens(), 2);
  assembler.push(tokens_of("ENDcd"));
  assembler.push(tokens_of("ef"));
  EXPECT_EQ(assembler.num_tokens(), 5);
}

}  // namespace
}  // namespace dhs
