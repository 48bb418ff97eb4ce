#include "kernels/expert_rows/expert_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace dhs {
namespace {

constexpr int64_t kWidth = 5;

std::vector<float> rows_of(int64_t num_rows, float scale) {
  std::vector<float> rows(num_rows * kWidth);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = scale * static_cast<float>(i % 97) - 3.0f;
  return rows;
}

TEST(ExpertRows, gather_takes_the_tokens_of_the_pairs) {
  const std::vector<float> x = rows_of(6, 1.0f);
  const std::vector<int32_t> pairs = {0, 5, 11};  // tokens 0, 2 and 5 of two choices each
  std::vector<float> in(3 * kWidth);
  launch_expert_gather({.x = view<const float>(x.data(), 6, kWidth),
                        .pairs = view<const int32_t>(pairs.data(), 3),
                        .top_k = 2,
                        .in = view(in.data(), 3, kWidth)},
                       {});
  for (int64_t i = 0; i < kWidth; ++i) {
    EXPECT_EQ(in[i], x[i]);
    EXPECT_EQ(in[kWidth + i], x[2 * kWidth + i]);
    EXPECT_EQ(in[2 * kWidth + i], x[5 * kWidth + i]);
  }
}

TEST(ExpertRows, scatter_writes_the_rows_of_the_pairs_only) {
  const std::vector<float> y = rows_of(2, 2.0f);
  const std::vector<int32_t> pairs = {3, 1};
  std::vector<float> out(4 * kWidth, 9.0f);
  launch_expert_scatter({.y = view<const float>(y.data(), 2, kWidth),
                         .pairs = view<const int32_t>(pairs.data(), 2),
                         .out = view(out.data(), 4, kWidth)},
                        {});
  for (int64_t i = 0; i < kWidth; ++i) {
    EXPECT_EQ(out[i], 9.0f);
    EXPECT_EQ(out[kWidth + i], y[kWidth + i]);
    EXPECT_EQ(out[2 * kWidth + i], 9.0f);
    EXPECT_EQ(out[3 * kWidth + i], y[i]);
  }
}

TEST(ExpertRows, combine_gives_a_token_the_same_bits_alone_and_in_a_batch) {
  constexpr int64_t kTokens = 100, kTopK = 3;
  const std::vector<float> y = rows_of(kTokens * kTopK, 0.37f);
  const std::vector<float> weights(kTokens * kTopK, 0.3f);
  std::vector<float> batch(kTokens * kWidth, 1.5f);
  launch_expert_combine({.y = view<const float>(y.data(), kTokens * kTopK, kWidth),
                         .weights = view<const float>(weights.data(), kTokens, kTopK),
                         .out = view(batch.data(), kTokens, kWidth)},
                        {});
  for (int64_t token : {0, 31, 32, 99}) {
    std::vector<float> alone(kWidth, 1.5f);
    launch_expert_combine({.y = view<const float>(y.data() + token * kTopK * kWidth, kTopK, kWidth),
                           .weights = view<const float>(weights.data(), 1, kTopK),
                           .out = view(alone.data(), 1, kWidth)},
                          {});
    for (int64_t i = 0; i < kWidth; ++i) {
      EXPECT_EQ(batch[token * kWidth + i], alone[i]) << token;
      double sum = 1.5;
      for (int64_t r = 0; r < kTopK; ++r) sum += 0.3 * y[(token * kTopK + r) * kWidth + i];
      EXPECT_NEAR(alone[i], sum, 1e-5);
    }
  }
}

}  // namespace
}  // namespace dhs
