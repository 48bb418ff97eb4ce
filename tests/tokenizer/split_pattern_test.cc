#include "tokenizer/split_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/split_regex.h"

namespace dhs {
namespace {

using testing::HasSubstr;

std::string translated(std::string_view pattern) {
  const auto native = translate_split_pattern(pattern);
  return native.ok() ? *native : native.status().ToString();
}

TEST(SplitPattern, keeps_what_means_the_same) {
  for (const std::string_view pattern :
       {"(?i:'s|'t|'re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "\\p{N}{1,3}", "a{2}b{2,}c{1,2}?",
        "(a|b)*?", "(?>a)(?=b)(?!c)(?<=d)(?<!e)",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", "[\u4E00-\u9FA5]+", "x++y?+z*+",
        "(?i)the", "\\Aa\\z"}) {
    EXPECT_EQ(translated(pattern), pattern);
  }
}

TEST(SplitPattern, rewrites_what_has_another_name) {
  EXPECT_EQ(translated("\\s+(?!\\S)"), "\\p{White_Space}+(?!\\P{White_Space})");
  EXPECT_EQ(translated("[\\s\\d]\\D"), "[\\p{White_Space}\\p{Nd}]\\P{Nd}");
  EXPECT_EQ(translated("\\p{Han}\\p{Upper-case Letter}"), "\\p{sc:Han}\\p{Lu}");
  EXPECT_EQ(translated("\\p{^L}\\P{^N}"), "\\P{L}\\p{N}");
  EXPECT_EQ(translated("\\u3042\\x{1F600}"), "\\x{3042}\\x{1F600}");
}

TEST(SplitPattern, refuses_what_means_something_else) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a\\w", "byte 1: this escape"},
      {"\\b", "this escape"},
      {"\\h", "this escape"},
      {"(a)\\1", "this escape"},
      {"\\pL", "property without"},
      {"\\p{Alpha}", "this character property"},
      {"\\p{L", "property without"},
      {"^a", "line anchor"},
      {"a$", "line anchor"},
      {"[a-z&&[aeiou]]", "intersection"},
      {"[a[b]]", "nested class"},
      {"[]a]", "begins with ]"},
      {"[ab", "unfinished class"},
      {"a{,2}", "no repeat count"},
      {"a{2}?", "after a repeat count"},
      {"a{1,2}+", "after a repeat count"},
      {"a{1", "unfinished repeat"},
      {"(?m:.)", "(?...) group"},
      {"a(?i)b", "(?...) group"},
      {"(?<n>a)", "(?...) group"},
      {"(*UCP)a", "verb"},
      {"(a", "not closed"},
      {"a)", "unmatched )"},
      {"(?i:\\p{Lu})", "property of case"},
      {"(?i:stop)", "ligature"},
      {"(?i:\u00E9)", "non-ASCII"},
      {"(?i:[\u00DF])", "non-ASCII"},
      {"(?i:\\u00DF)", "where case is ignored"},
      {"\\x41", "without {...}"},
      {"\\x{}", "this code point"},
      {"\\u12", "this code point"},
      {"a\\", "at the end"},
  };
  for (const auto& [pattern, why] : cases) {
    EXPECT_THAT(translated(pattern), HasSubstr(std::string(why))) << pattern;
    EXPECT_EQ(translate_split_pattern(pattern).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(SplitPattern, ends_case_insensitivity_with_its_group) {
  EXPECT_EQ(translated("(?i:'s)\\p{Lu}"), "(?i:'s)\\p{Lu}");
  EXPECT_EQ(translated("(?i:a(?-i:\\p{Lu}))"), "(?i:a(?-i:\\p{Lu}))");
}

TEST(SplitRegex, reports_the_error_of_a_bad_pattern) {
  for (const std::string_view pattern : {"*", "a{70000}", "[z-a]", "(?<=a+)b", "\\x{FFFFFFFF}"}) {
    const auto regex = SplitRegex::compile(pattern);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
}

TEST(SplitRegex, gives_up_on_a_search_that_backtracks_without_end) {
  const auto regex = SplitRegex::compile("(?:a|a|b)*[cd]");
  ASSERT_TRUE(regex.ok()) << regex.status();
  RegexScratch scratch;
  const std::string text(60, 'a');
  const auto match = regex->find(text, 0, scratch);
  EXPECT_EQ(match.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(match.status().message()), HasSubstr("within the limits of a search"));
  EXPECT_TRUE(regex->find("aac", 0, scratch).ok()) << "the scratch is usable after an error";
}

TEST(SplitRegex, finds_from_an_offset_and_looks_behind_it) {
  const auto regex = SplitRegex::compile("(?<=a)b");
  ASSERT_TRUE(regex.ok()) << regex.status();
  RegexScratch scratch;
  const auto match = regex->find("ab ab", 1, scratch);
  ASSERT_TRUE(match.ok() && match->has_value());
  EXPECT_EQ((*match)->begin, 1u);
  EXPECT_EQ((*match)->end, 2u);
}

}  // namespace
}  // namespace dhs
