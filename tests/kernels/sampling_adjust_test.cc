#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "kernels/sampling_fixture.h"

namespace dhs {
namespace {

using Adjustments = std::vector<LogitAdjustment>;

RowSampling with(RowSampling row, const Adjustments& adjustments) {
  row.adjustments = adjustments.data();
  row.num_adjustments = static_cast<int32_t>(adjustments.size());
  return row;
}

int32_t greedy(const std::vector<float>& logits, const Adjustments& adjustments) {
  return sample(logits, {with({}, adjustments)}).tokens[0];
}

TEST(AdjustSampling, adds_the_bias) {
  EXPECT_EQ(greedy({1, 3, 2}, {{1, 1, -1.5f}}), 2);
  EXPECT_EQ(greedy({1, 3, 2}, {{0, 1, 2.5f}}), 0);
  EXPECT_EQ(greedy({1, 3, 2}, {{0, 1, 2.0f}}), 0);  // a tie: the lowest token
}

TEST(AdjustSampling, divides_positive_logits_and_multiplies_the_others) {
  EXPECT_EQ(greedy({1, 3, 2}, {{1, 2, 0}}), 2);     // 3 becomes 1.5
  EXPECT_EQ(greedy({-2, -3}, {{0, 2, 0}}), 1);      // -2 becomes -4
  EXPECT_EQ(greedy({-2, -3}, {{1, 0.5f, 0}}), 1);   // -3 becomes -1.5
  EXPECT_EQ(greedy({0, -1}, {{0, 4, -0.5f}}), 0);   // 0 stays 0, then the bias
  EXPECT_EQ(greedy({3, 1.9f}, {{0, 2, 0.3f}}), 1);  // scale first: 1.8, not 1.65
  EXPECT_EQ(greedy({3, 1.7f}, {{0, 2, 0.3f}}), 0);
}

TEST(AdjustSampling, changes_nothing_with_neutral_values) {
  const auto logits = random_logits(500, 71);
  Adjustments neutral;
  for (int32_t token = 0; token < 500; token += 3) neutral.push_back({token, 1, 0});
  for (uint32_t position = 0; position < 20; ++position) {
    const RowSampling row{.temperature = 1, .position = position, .num_logprobs = 4};
    const Sampled plain = sample(logits, {row}, 4), got = sample(logits, {with(row, neutral)}, 4);
    EXPECT_EQ(got.tokens, plain.tokens);
    EXPECT_EQ(got.logprobs, plain.logprobs);
    EXPECT_EQ(got.top_tokens, plain.top_tokens);
  }
}

TEST(AdjustSampling, masks_what_it_adjusts) {
  const std::vector<int32_t> masked = {1};
  const Adjustments adjustments = {{1, 1, 100}, {2, 1, 1}, {77, 1, 5}};  // 77 is out of range
  RowSampling row = with({}, adjustments);
  row.masked_tokens = masked.data();
  row.num_masked_tokens = 1;
  EXPECT_EQ(sample({1, 3, 0.5f}, {row}).tokens[0], 2);
}

TEST(AdjustSampling, leaves_what_cannot_be_drawn) {
  EXPECT_EQ(greedy({-kInfinity, -5, kNan}, {{0, 0.1f, 100}, {2, 1, 100}}), 1);
  EXPECT_EQ(greedy({kInfinity, 3e38f}, {{0, 4, 0}}), 1);
  EXPECT_EQ(greedy({3e38f, 2e38f}, {{1, 0.1f, 0}}), 1);  // beyond the largest float: counts as it
}

TEST(AdjustSampling, draws_with_the_probabilities_of_the_adjusted_logits) {
  auto logits = random_logits(20, 72, 1.0f);
  for (float& logit : logits) logit += 8;
  const Adjustments adjustments = {{0, 1.5f, 0}, {3, 1, -2}, {7, 0.7f, 1}, {19, 2, 2}};
  std::vector<float> changed = logits;
  for (const LogitAdjustment& by : adjustments) {
    float& logit = changed[static_cast<size_t>(by.token)];
    logit = (logit > 0 ? logit / by.scale : logit * by.scale) + by.bias;
  }
  std::vector<double> expected;
  double total = 0;
  for (float logit : changed) total += std::exp(logit);
  for (float logit : changed) expected.push_back(std::exp(logit) / total);
  constexpr int kNumDraws = test::kOnCuda ? 400 : 100000;
  const auto counts =
      draw_counts(logits, with({.temperature = 1, .seed = 5}, adjustments), kNumDraws);
  EXPECT_GT(p_value_of(counts, expected, kNumDraws), 1e-4);
  const Sampled out = sample(logits, {with({.temperature = 0}, adjustments)});
  EXPECT_NEAR(out.logprobs[0], std::log(expected[static_cast<size_t>(out.tokens[0])]), 1e-5);
}

TEST(AdjustSampling, equals_the_reference_over_many_settings) {
  std::mt19937 generator(8);
  for (int trial = 0; trial < (test::kOnCuda ? 100 : 1000); ++trial) {
    const int64_t vocab_size = std::vector<int64_t>{1, 33, 400, 3000}[generator() % 4];
    const auto logits = random_logits(vocab_size, static_cast<uint32_t>(trial));
    Adjustments adjustments;
    for (int32_t token = 0; token < vocab_size; ++token) {
      if (generator() % 3 != 0) continue;
      adjustments.push_back(
          {token, generator() % 2 == 0 ? 1 : 1.3f, static_cast<float>(generator() % 64) / 16 - 2});
    }
    const std::vector<int32_t> masked = {static_cast<int32_t>(generator() % vocab_size)};
    RowSampling row = with({.temperature = trial % 4 == 0 ? 0 : 0.8f,
                            .top_p = trial % 3 == 0 ? 0.8f : 1,
                            .top_k = trial % 5 == 0 ? 20 : 0,
                            .seed = generator(),
                            .num_logprobs = trial % 6},
                           adjustments);
    row.masked_tokens = masked.data();
    row.num_masked_tokens = vocab_size > 1 ? 1 : 0;
    SCOPED_TRACE(trial);
    expect_same(sample(logits, {row}, 5), sample_by(sampling_ref, logits, row, 5));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace dhs
