#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "dhisparse/sampling.h"

namespace dhs {
namespace {

constexpr int64_t kVocabSize = 1000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams valid_params() {
  SamplingParams params;
  params.max_tokens = 16;
  return params;
}

absl::Status validate_with(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params = valid_params();
  change(params);
  return validate(params, LimitsConfig(), kVocabSize);
}

void expect_refused(const std::function<void(SamplingParams&)>& change,
                    const std::string& message) {
  const absl::Status status = validate_with(change);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
  EXPECT_EQ(std::string(status.message()), message);
}

void expect_allowed(const std::function<void(SamplingParams&)>& change) {
  EXPECT_EQ(validate_with(change), absl::OkStatus());
}

TEST(ValidateSampling, defaults_with_a_length_are_valid) {
  EXPECT_EQ(validate(valid_params(), LimitsConfig(), kVocabSize), absl::OkStatus());
}

TEST(ValidateSampling, temperature_is_0_to_100) {
  for (float value : {0.0f, 0.7f, 100.0f}) {
    expect_allowed([&](SamplingParams& p) { p.temperature = value; });
  }
  const std::vector<std::pair<float, std::string>> refused = {
      {-0.5f, "-0.5"}, {100.5f, "100.5"}, {kNan, "nan"}, {kInfinity, "inf"}, {-kInfinity, "-inf"}};
  for (const auto& [value, text] : refused) {
    expect_refused([&](SamplingParams& p) { p.temperature = value; },
                   "sampling.temperature is " + text + "; allowed: 0 (greedy) to 100");
  }
}

TEST(ValidateSampling, top_p_is_above_0_and_at_most_1) {
  for (float value : {std::numeric_limits<float>::denorm_min(), 0.5f, 1.0f}) {
    expect_allowed([&](SamplingParams& p) { p.top_p = value; });
  }
  const std::vector<std::pair<float, std::string>> refused = {
      {0.0f, "0"},   {-0.0f, "-0"},      {-0.25f, "-0.25"},   {1.5f, "1.5"},
      {kNan, "nan"}, {kInfinity, "inf"}, {-kInfinity, "-inf"}};
  for (const auto& [value, text] : refused) {
    expect_refused([&](SamplingParams& p) { p.top_p = value; },
                   "sampling.top_p is " + text + "; allowed: above 0, at most 1");
  }
}

TEST(ValidateSampling, min_p_is_0_to_1) {
  for (float value : {0.0f, 0.05f, 1.0f}) {
    expect_allowed([&](SamplingParams& p) { p.min_p = value; });
  }
  const std::vector<std::pair<float, std::string>> refused = {
      {-0.5f, "-0.5"}, {1.25f, "1.25"}, {kNan, "nan"}, {kInfinity, "inf"}, {-kInfinity, "-inf"}};
  for (const auto& [value, text] : refused) {
    expect_refused([&](SamplingParams& p) { p.min_p = value; },
                   "sampling.min_p is " + text + "; allowed: 0 to 1");
  }
}

TEST(ValidateSampling, top_k_is_0_or_more_and_may_exceed_the_vocabulary) {
  expect_allowed([](SamplingParams& p) { p.top_k = 0; });
  expect_allowed([](SamplingParams& p) { p.top_k = std::numeric_limits<int32_t>::max(); });
  expect_refused([](SamplingParams& p) { p.top_k = -1; },
                 "sampling.top_k is -1; allowed: 0 (off) or more");
}

TEST(ValidateSampling, repetition_penalty_is_above_0_and_at_most_10) {
  for (float value : {0.1f, 1.0f, 10.0f}) {
    expect_allowed([&](SamplingParams& p) { p.repetition_penalty = value; });
  }
  const std::vector<std::pair<float, std::string>> refused = {
      {0.0f, "0"}, {-1.5f, "-1.5"}, {10.5f, "10.5"}, {kNan, "nan"}, {kInfinity, "inf"}};
  for (const auto& [value, text] : refused) {
    expect_refused(
        [&](SamplingParams& p) { p.repetition_penalty = value; },
        "sampling.repetition_penalty is " + text + "; allowed: above 0, at most 10 (1: off)");
  }
}

TEST(ValidateSampling, presence_and_frequency_penalties_are_minus_2_to_2) {
  for (float value : {-2.0f, 0.0f, 2.0f}) {
    expect_allowed([&](SamplingParams& p) { p.presence_penalty = p.frequency_penalty = value; });
  }
  const std::vector<std::pair<float, std::string>> refused = {
      {-2.5f, "-2.5"}, {2.25f, "2.25"}, {kNan, "nan"}, {-kInfinity, "-inf"}};
  for (const auto& [value, text] : refused) {
    expect_refused([&](SamplingParams& p) { p.presence_penalty = value; },
                   "sampling.presence_penalty is " + text + "; allowed: -2 to 2");
    expect_refused([&](SamplingParams& p) { p.frequency_penalty = value; },
                   "sampling.frequency_penalty is " + text + "; allowed: -2 to 2");
  }
}

TEST(ValidateSampling, logit_biases_are_few_bounded_and_for_distinct_tokens_of_the_vocabulary) {
  expect_allowed([](SamplingParams& p) { p.logit_bias = {{999, -100}, {0, 100}, {5, 0}}; });
  expect_refused(
      [](SamplingParams& p) {
        p.logit_bias = {{1000, 1}};
      },
      "sampling.logit_bias is for token 1000; allowed: 0 to 999 (the vocabulary)");
  expect_refused(
      [](SamplingParams& p) {
        p.logit_bias = {{-1, 1}};
      },
      "sampling.logit_bias is for token -1; allowed: 0 to 999 (the vocabulary)");
  expect_refused(
      [](SamplingParams& p) {
        p.logit_bias = {{7, 100.5f}};
      },
      "sampling.logit_bias is 100.5 for token 7; allowed: -100 to 100");
  expect_refused(
      [](SamplingParams& p) {
        p.logit_bias = {{7, kNan}};
      },
      "sampling.logit_bias is nan for token 7; allowed: -100 to 100");
  expect_refused(
      [](SamplingParams& p) {
        p.logit_bias = {{7, 1}, {3, 1}, {7, 2}};
      },
      "sampling.logit_bias is twice for token 7; allowed: each token once");
  expect_refused([](SamplingParams& p) { p.logit_bias.resize(1025); },
                 "sampling.logit_bias is 1025 tokens; allowed: at most 1024");
}

TEST(ValidateSampling, max_tokens_is_1_or_more) {
  expect_allowed([](SamplingParams& p) { p.max_tokens = 1; });
  expect_refused([](SamplingParams& p) { p.max_tokens = 0; },
                 "sampling.max_tokens is 0; allowed: 1 or more");
  expect_refused([](SamplingParams& p) { p.max_tokens = -3; },
                 "sampling.max_tokens is -3; allowed: 1 or more");
}

TEST(ValidateSampling, min_tokens_is_0_to_max_tokens) {
  expect_allowed([](SamplingParams& p) { p.min_tokens = 16; });
  expect_refused([](SamplingParams& p) { p.min_tokens = 17; },
                 "sampling.min_tokens is 17; allowed: 0 to max_tokens (16)");
  expect_refused([](SamplingParams& p) { p.min_tokens = -1; },
                 "sampling.min_tokens is -1; allowed: 0 to max_tokens (16)");
}

TEST(ValidateSampling, top_logprobs_is_0_to_the_configured_limit) {
  expect_allowed([](SamplingParams& p) { p.num_top_logprobs = 20; });
  expect_refused([](SamplingParams& p) { p.num_top_logprobs = 21; },
                 "sampling.top_logprobs is 21; allowed: 0 to 20 (limits.max_logprobs)");
  expect_refused([](SamplingParams& p) { p.num_top_logprobs = -1; },
                 "sampling.top_logprobs is -1; allowed: 0 to 20 (limits.max_logprobs)");
  SamplingParams params = valid_params();
  params.num_top_logprobs = 4;
  LimitsConfig limits;
  limits.max_logprobs = 3;
  EXPECT_EQ(validate(params, limits, kVocabSize),
            absl::InvalidArgumentError(
                "sampling.top_logprobs is 4; allowed: 0 to 3 (limits.max_logprobs)"));
}

TEST(ValidateSampling, stop_tokens_are_few_and_in_the_vocabulary) {
  expect_allowed([](SamplingParams& p) { p.stop_token_ids.assign(64, 5); });
  expect_allowed([](SamplingParams& p) { p.stop_token_ids = {0, 999}; });
  expect_refused(
      [](SamplingParams& p) { p.stop_token_ids.assign(65, 5); },
      "sampling.stop_token_ids is 65 ids; allowed: at most 64 (limits.max_stop_token_ids)");
  expect_refused(
      [](SamplingParams& p) {
        p.stop_token_ids = {3, 1000};
      },
      "sampling.stop_token_ids is token 1000; allowed: 0 to 999 (the vocabulary)");
  expect_refused([](SamplingParams& p) { p.stop_token_ids = {-1}; },
                 "sampling.stop_token_ids is token -1; allowed: 0 to 999 (the vocabulary)");
}

}  // namespace
}  // namespace dhs
