#include "kernels/expert_rows/expert_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

constexpr int64_t kWidth = 5;

std::vector<float> rows_of(int64_t num_rows, int64_t width, float scale) {
  std::vector<float> rows(static_cast<size_t>(num_rows * width));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = scale * static_cast<float>(i % 97) - 3.0f;
  return rows;
}

// ---- plan -------------------------------------------------------------------------------------

struct Plan {
  std::vector<int32_t> offsets, pairs, row_of_pair;  // pairs: the planned ones
  bool operator==(const Plan&) const = default;
};

struct Choices {
  std::vector<int32_t> experts;  // [num_tokens, top_k]
  int64_t top_k = 1;
  int32_t first_expert = 0, num_experts = 1;
};

Plan plan(const Choices& choices) {
  const int64_t num_pairs = static_cast<int64_t>(choices.experts.size());
  const test::DeviceArray<int32_t> experts(choices.experts);
  const test::DeviceArray<int32_t> offsets(static_cast<size_t>(choices.num_experts) + 1, -7);
  const test::DeviceArray<int32_t> pairs(choices.experts.size(), -7);
  const test::DeviceArray<int32_t> row_of_pair(choices.experts.size(), -7);
  launch_expert_plan(
      {.experts = view<const int32_t>(experts.data(), num_pairs / choices.top_k, choices.top_k),
       .first_expert = choices.first_expert,
       .num_experts = choices.num_experts,
       .offsets = view(offsets.data(), choices.num_experts + 1),
       .pairs = view(pairs.data(), num_pairs),
       .row_of_pair = view(row_of_pair.data(), num_pairs)},
      test::stream());
  Plan made{offsets.download(), pairs.download(), row_of_pair.download()};
  const auto first_unused = made.pairs.begin() + made.offsets.back();
  EXPECT_TRUE(std::all_of(first_unused, made.pairs.end(), [](int32_t p) { return p == -7; }));
  made.pairs.erase(first_unused, made.pairs.end());
  return made;
}

// What the header says, expert by expert.
Plan plan_ref(const Choices& choices) {
  Plan made{{0}, {}, std::vector<int32_t>(choices.experts.size(), -1)};
  for (int32_t e = 0; e < choices.num_experts; ++e) {
    for (size_t pair = 0; pair < choices.experts.size(); ++pair) {
      if (choices.experts[pair] != choices.first_expert + e) continue;
      made.row_of_pair[pair] = static_cast<int32_t>(made.pairs.size());
      made.pairs.push_back(static_cast<int32_t>(pair));
    }
    made.offsets.push_back(static_cast<int32_t>(made.pairs.size()));
  }
  return made;
}

Choices random_choices(int64_t num_tokens, int64_t top_k, int32_t num_experts, uint32_t seed) {
  Choices choices{{}, top_k, 0, num_experts};
  std::mt19937 generator(seed);
  for (int64_t i = 0; i < num_tokens * top_k; ++i) {
    choices.experts.push_back(static_cast<int32_t>(generator() % num_experts));
  }
  return choices;
}

TEST(ExpertPlan, sorts_pairs_by_expert_and_keeps_their_order) {
  EXPECT_EQ(plan({{2, 0, 1, 2, 0, 2}, 2, 0, 4}),
            (Plan{{0, 2, 3, 6, 6}, {1, 4, 2, 0, 3, 5}, {3, 0, 2, 4, 1, 5}}));
}

TEST(ExpertPlan, equals_the_definition_for_many_shapes) {
  for (int64_t num_tokens : {1, 7, 33, 200}) {
    for (int64_t top_k : {1, 3, 8}) {
      for (int32_t num_experts : {1, 5, 64, 288}) {
        const auto choices = random_choices(num_tokens, top_k, num_experts, 3);
        ASSERT_EQ(plan(choices), plan_ref(choices))
            << num_tokens << " tokens, " << top_k << " of " << num_experts;
      }
    }
  }
}

TEST(ExpertPlan, equals_the_definition_for_more_pairs_than_one_block_sorts) {
  const auto choices = random_choices(2100, 8, 40, 4);
  EXPECT_EQ(plan(choices), plan_ref(choices));
  const auto all_to_one = random_choices(20011, 1, 1, 5);
  EXPECT_EQ(plan(all_to_one), plan_ref(all_to_one));
}

TEST(ExpertPlan, leaves_out_padding_and_the_experts_of_other_ranks) {
  auto choices = random_choices(90, 4, 24, 6);
  for (size_t pair = 0; pair < choices.experts.size(); pair += 5) choices.experts[pair] = -1;
  for (int32_t first : {0, 8, 16}) {
    choices.first_expert = first;
    choices.num_experts = 8;
    EXPECT_EQ(plan(choices), plan_ref(choices)) << "from expert " << first;
  }
}

TEST(ExpertPlan, plans_nothing_when_there_is_nothing_to_plan) {
  EXPECT_EQ(plan({{}, 8, 0, 3}), (Plan{{0, 0, 0, 0}, {}, {}}));
  EXPECT_EQ(plan({{-1, -1, 9}, 1, 0, 3}), (Plan{{0, 0, 0, 0}, {}, {-1, -1, -1}}));
  EXPECT_EQ(plan({{0, 1}, 1, 0, 0}), (Plan{{0}, {}, {-1, -1}}));
}

// ---- gather -----------------------------------------------------------------------------------

TEST(ExpertGather, takes_the_tokens_of_the_planned_pairs_and_touches_no_other_row) {
  constexpr int64_t kWide = 1030;
  const std::vector<float> x = rows_of(6, kWide, 1.0f);
  const test::DeviceArray<float> device_x(x), in(12 * kWide, 9.0f);
  // Tokens 0, 5 and 2 of two choices each; what follows is not a pair.
  const test::DeviceArray<int32_t> pairs({0, 11, 5, -99, 77, 1, 1, 1, 1, 1, 1, 1});
  const test::DeviceArray<int32_t> num_pairs(1, 3);
  launch_expert_gather({.x = view<const float>(device_x.data(), 6, kWide),
                        .pairs = view<const int32_t>(pairs.data(), 12),
                        .num_pairs = num_pairs.data(),
                        .top_k = 2,
                        .in = view(in.data(), 12, kWide)},
                       test::stream());
  const std::vector<float> got = in.download();
  for (int64_t i = 0; i < kWide; ++i) {
    ASSERT_EQ(got[i], x[i]);
    ASSERT_EQ(got[kWide + i], x[5 * kWide + i]);
    ASSERT_EQ(got[2 * kWide + i], x[2 * kWide + i]);
  }
  EXPECT_TRUE(std::all_of(got.begin() + 3 * kWide, got.end(), [](float v) { return v == 9.0f; }));
}

TEST(ExpertGather, takes_no_pairs_as_nothing_to_do) {
  const test::DeviceArray<float> x(kWidth, 1.0f), in(kWidth, 9.0f);
  const test::DeviceArray<int32_t> pairs(1, 0), num_pairs(1, 0);
  launch_expert_gather({.x = view<const float>(x.data(), 1, kWidth),
                        .pairs = view<const int32_t>(pairs.data(), 1),
                        .num_pairs = num_pairs.data(),
                        .top_k = 1,
                        .in = view(in.data(), 1, kWidth)},
                       test::stream());
  EXPECT_EQ(in.download(), std::vector<float>(kWidth, 9.0f));
}

// ---- combine ----------------------------------------------------------------------------------

struct Combination {
  std::vector<float> y, weights;
  std::vector<int32_t> row_of_pair;
  int64_t top_k, width;

  std::vector<float> add_to(const std::vector<float>& out) const {
    const int64_t num_tokens = static_cast<int64_t>(row_of_pair.size()) / top_k;
    const int64_t num_rows = static_cast<int64_t>(y.size()) / width;
    const test::DeviceArray<float> device_y(y), device_weights(weights), device_out(out);
    const test::DeviceArray<int32_t> device_rows(row_of_pair);
    launch_expert_combine(
        {.y = view<const float>(device_y.data(), num_rows, width),
         .weights = view<const float>(device_weights.data(), num_tokens, top_k),
         .row_of_pair = view<const int32_t>(device_rows.data(), num_tokens * top_k),
         .out = view(device_out.data(), num_tokens, width)},
        test::stream());
    return device_out.download();
  }
};

TEST(ExpertCombine, adds_the_weighted_rows_in_order_of_rank_rounding_each_step) {
  constexpr int64_t kTokens = 40, kTopK = 3, kWide = 1030;
  Combination combination{rows_of(kTokens * kTopK, kWide, 0.37f), {}, {}, kTopK, kWide};
  for (int32_t pair = 0; pair < kTokens * kTopK; ++pair) {
    combination.weights.push_back(0.1f + 0.013f * static_cast<float>(pair % 31));
    combination.row_of_pair.push_back(pair % 7 == 2 ? -1 : (pair * 37) % (kTokens * kTopK));
  }
  const std::vector<float> before = rows_of(kTokens, kWide, 0.11f);
  const std::vector<float> got = combination.add_to(before);
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t i = 0; i < kWide; ++i) {
      volatile float sum = before[token * kWide + i];  // volatile: no fused multiply-add
      for (int64_t pair = token * kTopK; pair < (token + 1) * kTopK; ++pair) {
        const int32_t row = combination.row_of_pair[pair];
        if (row < 0) continue;
        volatile float product = combination.weights[pair] * combination.y[row * kWide + i];
        sum = sum + product;
      }
      ASSERT_EQ(got[token * kWide + i], sum) << token << ", " << i;
    }
  }
}

TEST(ExpertCombine, gives_a_token_the_same_bits_alone_and_in_a_batch) {
  constexpr int64_t kTokens = 100, kTopK = 3;
  Combination all{rows_of(kTokens * kTopK, kWidth, 0.37f),
                  std::vector<float>(kTokens * kTopK, 0.3f),
                  {},
                  kTopK,
                  kWidth};
  for (int32_t pair = 0; pair < kTokens * kTopK; ++pair) all.row_of_pair.push_back(pair);
  const auto batch = all.add_to(std::vector<float>(kTokens * kWidth, 1.5f));
  for (int32_t token : {0, 31, 32, 99}) {
    Combination one = all;
    one.weights.resize(kTopK);
    one.row_of_pair = {token * 3, token * 3 + 1, token * 3 + 2};
    const auto alone = one.add_to(std::vector<float>(kWidth, 1.5f));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), batch.begin() + token * kWidth)) << token;
  }
}

TEST(ExpertCombine, leaves_a_token_without_planned_pairs_as_it_is) {
  const Combination combination{rows_of(1, kWidth, 1.0f), {1, 1}, {-1, -1}, 2, kWidth};
  EXPECT_EQ(combination.add_to(std::vector<float>(kWidth, 4.0f)), std::vector<float>(kWidth, 4.0f));
}

}  // namespace
}  // namespace dhs
