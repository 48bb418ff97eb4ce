#include "kernels/top_k/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/top_k/top_k_tables.h"

namespace dhs {
namespace {

using Scores = std::vector<float>;
using Selection = std::vector<int32_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Selection select(const Scores& scores, int64_t k, void (*top_k)(const TopKParams&)) {
  Selection selection(static_cast<size_t>(k), -7);
  const auto visible = static_cast<int32_t>(scores.size());
  top_k({view(scores.data(), 1, scores.size()), view(&visible, 1), view(selection.data(), 1, k)});
  return selection;
}

// Every table this machine runs gives the reference's selection.
void expect_reference(const Scores& scores, int64_t k, const std::string& what) {
  const Selection expected = select(scores, k, top_k_ref);
  for (CpuIsa isa : {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (!cpu_supports(isa)) continue;
    Selection selection(static_cast<size_t>(k), -7);
    const auto visible = static_cast<int32_t>(scores.size());
    launch_top_k_with(top_k_table(isa), {view(scores.data(), 1, scores.size()), view(&visible, 1),
                                         view(selection.data(), 1, k)});
    EXPECT_EQ(selection, expected) << what << ", " << cpu_isa_name(isa);
  }
}

Scores normal_scores(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Scores scores(count);
  for (float& score : scores) score = normal(random);
  return scores;
}

TEST(TopK, selects_what_a_full_sort_selects) {
  for (size_t count : {1u, 15u, 16u, 17u, 255u, 257u, 4096u, 20000u, 65537u, 131072u}) {
    for (int64_t k : {1, 2, 16, 255, 256, 2048}) {
      expect_reference(normal_scores(count, static_cast<unsigned>(count + size_t(k))), k,
                       std::to_string(count) + " scores, k " + std::to_string(k));
    }
  }
}

TEST(TopK, takes_all_when_fewer_are_visible_than_k) {
  EXPECT_EQ(select({3, 1, 2}, 5, top_k_ref), (Selection{0, 1, 2, -1, -1}));
  expect_reference({3, 1, 2}, 5, "3 of 5");
  expect_reference({}, 4, "none visible");
  expect_reference({1, 2}, 0, "k 0");
}

TEST(TopK, gives_equal_scores_to_the_lowest_positions) {
  EXPECT_EQ(select({1, 2, 1, 2, 1, 2}, 4, top_k_ref), (Selection{0, 1, 3, 5}));
  expect_reference({1, 2, 1, 2, 1, 2}, 4, "two values");
  expect_reference(Scores(70000, 0.5f), 2048, "one value");
  Scores coarse = normal_scores(90000, 11);
  for (float& score : coarse) score = std::round(score * 4) / 4;
  expect_reference(coarse, 2048, "few values");
}

TEST(TopK, treats_both_zeros_as_equal) {
  EXPECT_EQ(select({-0.0f, 0.0f, -0.0f, -1.0f}, 2, top_k_ref), (Selection{0, 1}));
  expect_reference({-0.0f, 0.0f, -0.0f, -1.0f}, 2, "small");
  Scores zeros(60000, -0.0f);
  for (size_t i = 0; i < zeros.size(); i += 3) zeros[i] = 0.0f;
  expect_reference(zeros, 100, "only zeros");
}

TEST(TopK, counts_nan_as_minus_infinity) {
  const float nan = std::nanf("");
  EXPECT_EQ(select({nan, -kInfinity, 1, -nan}, 3, top_k_ref), (Selection{0, 1, 2}));
  expect_reference({nan, -kInfinity, 1, -nan}, 3, "small");
  Scores scores = normal_scores(50000, 12);
  for (size_t i = 0; i < scores.size(); i += 2) scores[i] = i % 4 == 0 ? nan : -nan;
  expect_reference(scores, 2048, "half NaN");
  Scores mostly_nan(50000, nan);
  mostly_nan[49999] = -1e30f;
  expect_reference(mostly_nan, 10, "one number");
}

TEST(TopK, handles_infinities_and_subnormals) {
  Scores scores = normal_scores(40000, 13);
  for (float& score : scores) score *= 1e-42f;
  scores[39000] = kInfinity;
  scores[5] = -kInfinity;
  expect_reference(scores, 300, "subnormals");
}

TEST(TopK, survives_scores_that_mislead_its_sample) {
  const size_t count = 1 << 17;  // the sample takes the first 16 of every 512
  Scores low_sample(count), high_sample(count);
  for (size_t i = 0; i < count; ++i) {
    low_sample[i] = (i % 512 < 16 ? -1.0f : 1.0f) - static_cast<float>(i) * 1e-6f;
    high_sample[i] = (i % 512 < 16 ? 1.0f : -1.0f) - static_cast<float>(i) * 1e-6f;
  }
  expect_reference(low_sample, 2048, "low sample");
  expect_reference(high_sample, 2048, "high sample");
  expect_reference(high_sample, 5000, "high sample, k beyond it");
  std::sort(low_sample.begin(), low_sample.end());
  expect_reference(low_sample, 2048, "ascending");
}

TEST(TopK, is_deterministic_across_rows_strides_and_threads) {
  const int64_t rows = 9, width = 30000, k = 64;
  Scores scores = normal_scores(static_cast<size_t>(rows * width), 14);
  std::vector<int32_t> visible = {0, 1, 63, 64, 65, 9000, 29999, 30000, 20000};
  Selection expected(static_cast<size_t>(rows * k));
  const TensorView<const float, 2> all = view<const float>(scores.data(), rows, width);
  top_k_ref({all, view<const int32_t>(visible.data(), rows), view(expected.data(), rows, k)});
  for (int threads : {1, 2, 3}) {
    set_num_kernel_threads(threads);
    Selection selection(static_cast<size_t>(rows * k));
    launch_top_k({all, view<const int32_t>(visible.data(), rows), view(selection.data(), rows, k)},
                 Stream{});
    EXPECT_EQ(selection, expected) << threads << " threads";
  }
  launch_top_k({view<const float>(nullptr, 0, width), view<const int32_t>(nullptr, 0),
                view<int32_t>(nullptr, 0, k)},
               Stream{});
}

}  // namespace
}  // namespace dhs
