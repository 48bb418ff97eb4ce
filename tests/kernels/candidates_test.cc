#include "kernels/candidates/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Found {
  std::vector<int32_t> tokens;
  std::vector<float> values;
};

struct CandidatesCase {
  int64_t num_rows, vocab_size, num_candidates;
  float multiplier = 1, softcap = 0;

  CandidatesParams params(const float* logits, float* values, int32_t* tokens) const {
    return {.logits = view(logits, num_rows, vocab_size),
            .multiplier = multiplier,
            .softcap = softcap,
            .values = view(values, num_rows, num_candidates),
            .tokens = view(tokens, num_rows, num_candidates)};
  }
  size_t out_size() const { return static_cast<size_t>(num_rows * num_candidates); }

  Found find(const std::vector<float>& logits) const {
    const test::DeviceArray<float> device_logits(logits), values(out_size(), -7.0f);
    const test::DeviceArray<int32_t> tokens(out_size(), -7);
    launch_candidates(params(device_logits.data(), values.data(), tokens.data()), test::stream());
    return {tokens.download(), values.download()};
  }
  Found find_ref(const std::vector<float>& logits) const {
    Found out{std::vector<int32_t>(out_size(), -7), std::vector<float>(out_size(), -7.0f)};
    candidates_ref(params(logits.data(), out.values.data(), out.tokens.data()));
    return out;
  }
};

std::vector<float> random_logits(int64_t count, uint32_t seed, float spread = 3.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

void expect_same(const Found& got, const Found& want) {
  ASSERT_EQ(got.tokens, want.tokens);
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (got.values[i] == want.values[i]) continue;  // infinities too
    ASSERT_NEAR(got.values[i], want.values[i], 1e-6f * (1 + std::fabs(want.values[i])));
  }
}

TEST(Candidates, equal_the_reference) {
  for (int64_t vocab_size : {1, 2, 15, 16, 17, 64, 1000, 4099}) {
    for (int64_t num_candidates : {1, 4, 16, 64}) {
      if (num_candidates > vocab_size) continue;
      const CandidatesCase test{3, vocab_size, num_candidates};
      auto logits = random_logits(3 * vocab_size, static_cast<uint32_t>(vocab_size));
      SCOPED_TRACE(vocab_size);
      expect_same(test.find(logits), test.find_ref(logits));
      for (float& logit : logits) logit = std::round(logit);  // ties, and -0
      expect_same(test.find(logits), test.find_ref(logits));
    }
  }
}

TEST(Candidates, are_all_tokens_in_order_when_there_are_no_more) {
  const CandidatesCase test{1, 5, 5};
  const Found got = test.find({2, -1, 3, 2, 0});
  EXPECT_EQ(got.tokens, (std::vector<int32_t>{2, 0, 3, 4, 1}));
  EXPECT_EQ(got.values, (std::vector<float>{3, 2, 2, 0, -1}));
}

TEST(Candidates, give_ties_to_the_lowest_tokens) {
  std::vector<float> logits(300, 1.0f);
  logits[40] = logits[290] = 2.0f;
  logits[0] = -0.0f;
  const CandidatesCase test{1, 300, 4};
  EXPECT_EQ(test.find(logits).tokens, (std::vector<int32_t>{40, 290, 1, 2}));
  EXPECT_EQ((CandidatesCase{1, 3, 3}.find({-0.0f, 0.0f, -0.0f}).tokens),
            (std::vector<int32_t>{0, 1, 2}));
}

TEST(Candidates, apply_multiplier_and_cap_and_keep_the_order_of_the_logits) {
  // 100 and 200 are both capped to 5: the larger logit still comes first.
  const CandidatesCase test{1, 4, 4, 0.5f, 5.0f};
  const Found got = test.find({100, 200, 2, -4});
  EXPECT_EQ(got.tokens, (std::vector<int32_t>{1, 0, 2, 3}));
  EXPECT_EQ(got.values[0], 5.0f);
  EXPECT_EQ(got.values[1], 5.0f);
  EXPECT_NEAR(got.values[2], 5 * std::tanh(1 / 5.0), 1e-6);
  EXPECT_NEAR(got.values[3], 5 * std::tanh(-2 / 5.0), 1e-6);
  const CandidatesCase plain{1, 3, 2, 4.0f};
  EXPECT_EQ(plain.find({1, 2, 3}).values, (std::vector<float>{12, 8}));
  const CandidatesCase many{2, 700, 16, 1.7f, 4.0f};
  const auto logits = random_logits(1400, 5);
  expect_same(many.find(logits), many.find_ref(logits));
}

TEST(Candidates, put_what_is_no_number_last) {
  const CandidatesCase test{1, 6, 5};
  const Found got = test.find({kNan, -kInfinity, 1, kNan, kInfinity, -3});
  EXPECT_EQ(got.tokens, (std::vector<int32_t>{4, 2, 5, 0, 1}));
  EXPECT_EQ(got.values[0], std::numeric_limits<float>::max());
  EXPECT_EQ(got.values[3], -kInfinity);
  EXPECT_EQ(got.values[4], -kInfinity);
  const CandidatesCase nothing{1, 3, 2};
  EXPECT_EQ(nothing.find({kNan, -kInfinity, kNan}).tokens, (std::vector<int32_t>{0, 1}));
}

TEST(Candidates, give_a_row_the_same_bits_alone_and_in_a_batch) {
  constexpr int64_t kVocab = test::kOnCuda ? 3001 : 30011, kRows = 5;
  const auto logits = random_logits(kVocab * kRows, 9);
  const CandidatesCase test{kRows, kVocab, 16};
  set_num_kernel_threads(2);
  const Found all = test.find(logits);
  set_num_kernel_threads(1);
  EXPECT_EQ(test.find(logits).values, all.values);
  set_num_kernel_threads(0);
  for (int64_t row = 0; row < kRows; ++row) {
    const auto begin = logits.begin() + row * kVocab;
    const Found alone = CandidatesCase{1, kVocab, 16}.find({begin, begin + kVocab});
    EXPECT_TRUE(
        std::equal(alone.tokens.begin(), alone.tokens.end(), all.tokens.begin() + row * 16));
    EXPECT_TRUE(
        std::equal(alone.values.begin(), alone.values.end(), all.values.begin() + row * 16));
  }
}

TEST(Candidates, accept_zero_rows) {
  EXPECT_TRUE((CandidatesCase{0, 10, 4}.find({}).tokens.empty()));
}

}  // namespace
}  // namespace dhs
