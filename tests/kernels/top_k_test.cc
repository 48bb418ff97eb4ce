#include "kernels/top_k/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/test_memory.h"
#include "kernels/top_k/top_k_config.h"
#include "kernels/top_k/top_k_tables.h"
#ifdef DHS_SIMT
#include "simt/emu/runtime.h"
#endif

namespace dhs {
namespace {

using Scores = std::vector<float>;
using Selection = std::vector<int32_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Sizes under emulation: what matters is the number of tiles, splits and digits.
constexpr size_t kShrink = test::kOnCuda ? 8 : 1;

struct Rows {
  Scores scores;  // [visible.size(), width]
  int64_t width = 0;
  std::vector<int32_t> visible;

  int64_t count() const { return static_cast<int64_t>(visible.size()); }
};

// One way to select: a table of the CPU, or a configuration of the CUDA kernels.
struct Version {
  std::string name;
  void (*launch)(const TopKParams& params);
};

#if DHS_TEST_CUDA
template <int kSplits>
void launch_splits(const TopKParams& params) {
  launch_top_k_cuda_with({kSplits, 0}, params, test::stream());
}

std::vector<Version> versions() {
  return {
      {"as chosen", [](const TopKParams& params) { launch_top_k(params, test::stream()); }},
      {"one block",
       [](const TopKParams& params) {
         if (params.selection.sizes[0] > 0 && params.selection.sizes[1] > 0) {
           launch_top_k_cuda_with({}, params, test::stream());
         }
       }},
      {"2 splits", launch_splits<2>},
      {"5 splits", launch_splits<5>},
  };
}
#else
template <CpuIsa kIsa>
void launch_isa(const TopKParams& params) {
  launch_top_k_with(top_k_table(kIsa), params);
}

template <CpuIsa kIsa>
void add_version(std::vector<Version>& made) {
  if (cpu_supports(kIsa)) made.push_back({cpu_isa_name(kIsa), launch_isa<kIsa>});
}

std::vector<Version> versions() {
  std::vector<Version> made = {
      {"as chosen", [](const TopKParams& params) { launch_top_k(params, test::stream()); }}};
  add_version<CpuIsa::kBase>(made);
  add_version<CpuIsa::kAvx2>(made);
  add_version<CpuIsa::kAvx512>(made);
  add_version<CpuIsa::kAvx512Bf16>(made);
  return made;
}
#endif

Selection select_reference(const Rows& rows, int64_t k) {
  Selection selection(static_cast<size_t>(rows.count() * k), -7);
  top_k_ref({view(rows.scores.data(), rows.count(), rows.width),
             view(rows.visible.data(), rows.count()), view(selection.data(), rows.count(), k)});
  return selection;
}

Selection select(const Rows& rows, int64_t k, const Version& version) {
  const test::DeviceArray<float> scores(rows.scores);
  const test::DeviceArray<int32_t> visible(rows.visible);
  const auto size = static_cast<size_t>(rows.count() * k);
  const test::DeviceArray<int32_t> selection(size + 1, -7);
  version.launch({view<const float>(scores.data(), rows.count(), rows.width),
                  view<const int32_t>(visible.data(), rows.count()),
                  view(selection.data(), rows.count(), k)});
  Selection selected = selection.download();
  EXPECT_EQ(selected.back(), -7) << version.name << " writes past its last row";
  selected.resize(size);
  return selected;
}

Rows row_of(const Scores& scores) {
  return {scores, static_cast<int64_t>(scores.size()), {static_cast<int32_t>(scores.size())}};
}

// Every version gives the reference's selection.
void expect_reference(const Rows& rows, int64_t k, const std::string& what) {
  const Selection expected = select_reference(rows, k);
  for (const Version& version : versions()) {
    EXPECT_EQ(select(rows, k, version), expected) << what << ", " << version.name;
  }
}
void expect_reference(const Scores& scores, int64_t k, const std::string& what) {
  expect_reference(row_of(scores), k, what);
}

Scores normal_scores(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Scores scores(count);
  for (float& score : scores) score = normal(random);
  return scores;
}

TEST(TopK, selects_what_a_full_sort_selects) {
  const std::vector<size_t> counts =
      test::kOnCuda ? std::vector<size_t>{1, 31, 33, 257, 4096, 4097, 13000}
                    : std::vector<size_t>{1, 15, 16, 17, 255, 257, 4096, 20000, 65537, 131072};
  for (size_t count : counts) {
    for (int64_t k : {1, 2, 16, 255, 256, 2048}) {
      if (test::kOnCuda && (k == 2 || k == 255)) continue;
      expect_reference(normal_scores(count, static_cast<unsigned>(count + size_t(k))), k,
                       std::to_string(count) + " scores, k " + std::to_string(k));
    }
  }
}

TEST(TopK, takes_all_when_fewer_are_visible_than_k) {
  EXPECT_EQ(select_reference(row_of({3, 1, 2}), 5), (Selection{0, 1, 2, -1, -1}));
  expect_reference({3, 1, 2}, 5, "3 of 5");
  expect_reference({3, 1, 2}, 3, "3 of 3");
  expect_reference({3, 1, 2}, 3000, "3 of 3000");
  expect_reference(Scores{}, 4, "none visible");
}

TEST(TopK, gives_equal_scores_to_the_lowest_positions) {
  EXPECT_EQ(select_reference(row_of({1, 2, 1, 2, 1, 2}), 4), (Selection{0, 1, 3, 5}));
  expect_reference({1, 2, 1, 2, 1, 2}, 4, "two values");
  expect_reference(Scores(70000 / kShrink, 0.5f), 2048, "one value");
  Scores coarse = normal_scores(90000 / kShrink, 11);
  for (float& score : coarse) score = std::round(score * 4) / 4;
  expect_reference(coarse, 2048, "few values");
}

TEST(TopK, treats_both_zeros_as_equal) {
  EXPECT_EQ(select_reference(row_of({-0.0f, 0.0f, -0.0f, -1.0f}), 2), (Selection{0, 1}));
  expect_reference({-0.0f, 0.0f, -0.0f, -1.0f}, 2, "small");
  Scores zeros(60000 / kShrink, -0.0f);
  for (size_t i = 0; i < zeros.size(); i += 3) zeros[i] = 0.0f;
  expect_reference(zeros, 100, "only zeros");
}

TEST(TopK, counts_nan_as_minus_infinity) {
  const float nan = std::nanf("");
  EXPECT_EQ(select_reference(row_of({nan, -kInfinity, 1, -nan}), 3), (Selection{0, 1, 2}));
  expect_reference({nan, -kInfinity, 1, -nan}, 3, "small");
  Scores scores = normal_scores(50000 / kShrink, 12);
  for (size_t i = 0; i < scores.size(); i += 2) scores[i] = i % 4 == 0 ? nan : -nan;
  expect_reference(scores, 2048, "half NaN");
  Scores mostly_nan(50000 / kShrink, nan);
  mostly_nan.back() = -1e30f;
  expect_reference(mostly_nan, 10, "one number");
}

TEST(TopK, handles_infinities_and_subnormals) {
  Scores scores = normal_scores(40000 / kShrink, 13);
  for (float& score : scores) score *= 1e-42f;
  scores[scores.size() - 1000] = kInfinity;
  scores[5] = -kInfinity;
  expect_reference(scores, 300, "subnormals");
}

TEST(TopK, tells_scores_apart_that_differ_in_the_last_bits_only) {
  Scores scores(10000);
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = 1.0f + static_cast<float>(i * 7919 % 1500) * 0x1p-23f;
  }
  expect_reference(scores, 1999, "one digit decides");
  for (float& score : scores) score = -score;
  expect_reference(scores, 1999, "negative");
}

TEST(TopK, survives_scores_that_mislead_its_sample) {
  const size_t count = (1 << 17) / kShrink;  // the sample takes the first 16 of every 512
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

// Rows that see nothing, as padding does, up to all of the width.
Rows mixed_rows() {
  const auto width = static_cast<int64_t>(30000 / kShrink + 1);  // rows start unaligned
  const auto most = static_cast<int32_t>(width);
  return {normal_scores(static_cast<size_t>(10 * width), 14),
          width,
          {0, 1, 63, 64, 65, most / 3, most - 1, most, most / 3 * 2, 0}};
}

TEST(TopK, every_row_has_its_own_selection) {
  Rows rows = mixed_rows();
  expect_reference(rows, 64, "mixed rows");
  for (float& score : rows.scores) score = std::round(score * 2) / 2;
  expect_reference(rows, 64, "mixed rows with ties");
}

TEST(TopK, a_row_does_not_depend_on_its_batch) {
  const Rows rows = mixed_rows();
  for (const Version& version : versions()) {
    const Selection together = select(rows, 64, version);
    for (int64_t t : {3, 5, 7}) {
      const auto first = rows.scores.begin() + t * rows.width;
      const Rows alone{{first, first + rows.width}, rows.width, {rows.visible[size_t(t)]}};
      const auto expected = together.begin() + t * 64;
      EXPECT_EQ(select(alone, 64, version), Selection(expected, expected + 64))
          << version.name << ", row " << t;
    }
  }
}

TEST(TopK, takes_no_rows_and_no_k_as_nothing_to_do) {
  const auto launch = [](int64_t num_rows, int64_t k) {
    launch_top_k({view<const float>(nullptr, num_rows, 8), view<const int32_t>(nullptr, num_rows),
                  view<int32_t>(nullptr, num_rows, k)},
                 test::stream());
  };
  launch(0, 64);
  const Rows rows = mixed_rows();
  EXPECT_TRUE(select(rows, 0, versions()[0]).empty());
}

#if !DHS_TEST_CUDA
TEST(TopK, does_not_depend_on_threads) {
  const Rows rows = mixed_rows();
  const Selection expected = select_reference(rows, 64);
  for (int threads : {1, 2, 3}) {
    set_num_kernel_threads(threads);
    EXPECT_EQ(select(rows, 64, versions()[0]), expected) << threads << " threads";
  }
}
#endif

// A million positions, but fewer where every access is checked, which takes ten times as long.
size_t long_row() {
#if defined(DHS_SIMT) && defined(__SANITIZE_ADDRESS__)
  return 50000;
#elif defined(DHS_SIMT)
  return simt::accesses_are_checked() ? 50000 : 1 << 20;
#else
  return 1 << 20;
#endif
}

TEST(TopK, selects_from_a_million_positions) {
  const Rows rows = row_of(normal_scores(long_row(), 15));
  EXPECT_EQ(select(rows, 2048, versions()[0]), select_reference(rows, 2048));
}

#ifdef DHS_SIMT
TEST(TopK, blocks_that_share_a_row_write_apart) {
  const Rows rows = row_of(normal_scores(9000, 16));
  simt::options().global_races = true;
  expect_reference(rows, 100, "with races watched");
  simt::options().global_races = false;
}
#endif

// ---- The choice of a CUDA configuration ---------------------------------------------------------

TopKConfig pick(int64_t num_rows, int64_t max_visible, int64_t scratch_bytes = int64_t{64} << 20) {
  return pick_top_k_config({.num_rows = num_rows,
                            .max_visible = max_visible,
                            .num_sms = 132,
                            .scratch_bytes = scratch_bytes});
}

TEST(TopKConfig, splits_few_long_rows_only) {
  EXPECT_EQ(pick(1, 1 << 20).num_splits, kTopKMaxSplits);
  EXPECT_EQ(pick(1, 1 << 15).num_splits, 1);
  EXPECT_EQ(pick(1, (1 << 15) + 1).num_splits, 2);
  EXPECT_EQ(pick(60, 1 << 20).num_splits, 2);
  EXPECT_EQ(pick(70, 1 << 20).num_splits, 1);
  EXPECT_EQ(pick(8, 1 << 17).num_splits, 4);
}

TEST(TopKConfig, never_needs_more_scratch_than_there_is) {
  for (int64_t num_rows : {1, 3, 40}) {
    for (int64_t scratch_bytes : {int64_t{0}, int64_t{40} << 10, int64_t{1} << 20}) {
      const TopKConfig config = pick(num_rows, 1 << 20, scratch_bytes);
      if (config.num_splits == 1) continue;
      EXPECT_LE(num_rows * top_k_row_scratch_bytes(config.num_splits) + 512, scratch_bytes);
    }
  }
  EXPECT_EQ(pick(1, 1 << 20, 0).num_splits, 1);
  EXPECT_EQ(pick(1, 1 << 20, int64_t{40} << 10).num_splits, 2);
}

}  // namespace
}  // namespace dhs
