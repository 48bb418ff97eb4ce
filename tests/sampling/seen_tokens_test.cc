#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "dhisparse/sampling.h"

namespace dhs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<SeenToken> all_of(const SeenTokens& seen) {
  return {seen.tokens().begin(), seen.tokens().end()};
}

TEST(SeenTokens, are_none_without_penalties) {
  SeenTokens seen({.logit_bias = {{3, 1}}}, std::vector<TokenId>{4, 5});
  seen.add_output(4);
  EXPECT_THAT(all_of(seen), IsEmpty());
}

TEST(SeenTokens, of_the_prompt_count_for_a_repetition_penalty_alone) {
  const std::vector<TokenId> prompt = {9, 2, 9, 5};
  SeenTokens repetition({.repetition_penalty = 1.5f}, prompt);
  repetition.add_output(5);
  EXPECT_THAT(all_of(repetition),
              ElementsAre(SeenToken{2, true, 0}, SeenToken{5, true, 1}, SeenToken{9, true, 0}));
  SeenTokens presence({.presence_penalty = 1}, prompt);
  presence.add_output(5);
  EXPECT_THAT(all_of(presence), ElementsAre(SeenToken{5, false, 1}));
}

TEST(SeenTokens, of_the_output_are_counted_in_rising_order) {
  SeenTokens seen({.frequency_penalty = -1}, {});
  std::mt19937 random(5);
  std::vector<int32_t> counts(50);
  for (int i = 0; i < 400; ++i) {
    const auto token = static_cast<TokenId>(random() % 50);
    seen.add_output(token);
    ++counts[token];
  }
  ASSERT_EQ(seen.tokens().size(), 50u);
  for (TokenId token = 0; token < 50; ++token) {
    EXPECT_EQ(seen.tokens()[token], (SeenToken{token, false, counts[token]}));
  }
}

// ---- How many tokens a request may come to adjust -----------------------------------------------

absl::Status check(const SamplingParams& params, int64_t limit) {
  LimitsConfig limits;
  limits.max_adjusted_tokens = limit;
  const std::vector<TokenId> prompt = {7, 8, 7, 9};  // three distinct ones
  return validate_adjusted_tokens(params, prompt, limits, 1000);
}

TEST(ValidateAdjustedTokens, counts_prompt_output_and_biases_as_far_as_they_are_adjusted) {
  struct Case {
    SamplingParams params;
    int64_t most;
  };
  const std::vector<LogitBias> biases = {{1, 2.0f}, {2, 2.0f}};
  const Case cases[] = {
      {{.max_tokens = 10}, 0},
      {{.logit_bias = biases, .max_tokens = 10}, 2},
      {{.presence_penalty = 1, .max_tokens = 10}, 10},
      {{.frequency_penalty = 1, .logit_bias = biases, .max_tokens = 10}, 12},
      {{.repetition_penalty = 2, .max_tokens = 10}, 13},
      {{.repetition_penalty = 2, .logit_bias = biases, .max_tokens = 10}, 15},
      {{.presence_penalty = 1, .max_tokens = 5000}, 1000},  // the vocabulary
  };
  for (const auto& [params, most] : cases) {
    EXPECT_EQ(check(params, most), absl::OkStatus()) << most;
    if (most > 0) {
      EXPECT_EQ(check(params, most - 1).code(), absl::StatusCode::kInvalidArgument) << most;
    }
  }
}

TEST(ValidateAdjustedTokens, names_value_limit_and_remedy) {
  EXPECT_EQ(
      check({.repetition_penalty = 2, .logit_bias = {{1, 2.0f}}, .max_tokens = 10}, 13).message(),
      "sampling: penalties and logit_bias may change the logits of 14 tokens (3 of the "
      "prompt, max_tokens 10, 1 biases); the limit is 13 (limits.max_adjusted_tokens); lower "
      "max_tokens, leave the penalties out or raise the limit");
  EXPECT_THAT(std::string(check({.logit_bias = {{1, 2.0f}}, .max_tokens = 10}, 0).message()),
              HasSubstr("the limit is 0 (limits.max_adjusted_tokens); send fewer biases or raise"));
}

}  // namespace
}  // namespace dhs
