#include "kernels/index_score/index_score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/index_score/index_score_tables.h"

namespace dhs {
namespace {

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8};
constexpr CpuIsa kIsas[] = {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16};
constexpr float kUntouched = 12345.0f;

// Sequences with their keys in scattered pages, and query rows over them.
struct Problem {
  Problem(RowFormat format, int32_t index_dim, int64_t heads, const std::vector<int32_t>& lengths)
      : layout{format, index_dim, 64}, num_heads(heads), num_blocks(1) {
    for (int32_t length : lengths) num_blocks = std::max<int64_t>(num_blocks, (length + 63) / 64);
    const auto num_items = static_cast<int64_t>(lengths.size()) * num_blocks;
    item_bytes = layout.page_bytes() + 112;
    pool.resize(static_cast<size_t>(num_items * item_bytes) + 64);
    for (int64_t c = 0; c < num_items; ++c) offsets.push_back((num_items - 1 - c) * item_bytes);
    table.resize(static_cast<size_t>(num_items));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), random);
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t k = 0; k < num_blocks * 64; ++k) write_key(s, k, values(index_dim));
    }
  }

  std::vector<float> values(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> made(static_cast<size_t>(count));
    for (float& value : made) value = normal(random);
    return made;
  }

  void write_key(size_t sequence, int32_t position, const std::vector<float>& key) {
    const int64_t block = static_cast<int64_t>(sequence) * num_blocks + position / 64;
    encode_index_key(layout, key.data(), position % 64,
                     pages().at(table[static_cast<size_t>(block)]) + 48);
  }

  void add_row(int32_t sequence, int32_t keys_visible) {
    add_row(sequence, keys_visible, values(num_heads * layout.index_dim), values(num_heads));
  }
  void add_row(int32_t sequence, int32_t keys_visible, const std::vector<float>& row_q,
               const std::vector<float>& row_weights) {
    q.insert(q.end(), row_q.begin(), row_q.end());
    weights.insert(weights.end(), row_weights.begin(), row_weights.end());
    sequences.push_back(sequence);
    visible.push_back(keys_visible);
  }

  ChunkedItems pages() { return {pool.data(), offsets.data(), 1, item_bytes}; }

  int64_t width() const { return num_blocks * 64; }

  IndexScoreParams params(std::vector<float>& scores) {
    const auto rows = static_cast<int64_t>(visible.size());
    scores.assign(static_cast<size_t>(rows * width()), kUntouched);
    IndexScoreParams made;
    made.layout = layout;
    made.pages = pages();
    made.group_offset = 48;
    made.item_table = view<const int32_t>(
        table.data(), static_cast<int64_t>(table.size()) / num_blocks, num_blocks);
    made.q = view<const float>(q.data(), rows, num_heads, layout.index_dim);
    made.head_weights = view<const float>(weights.data(), rows, num_heads);
    made.sequence_of_row = view<const int32_t>(sequences.data(), rows);
    made.visible = view<const int32_t>(visible.data(), rows);
    made.softmax_scale = 1.0f / std::sqrt(static_cast<float>(layout.index_dim));
    made.scores = view(scores.data(), rows, width());
    return made;
  }

  std::vector<float> run(CpuIsa isa) {
    std::vector<float> scores;
    launch_index_score_with(index_score_table(isa, layout), params(scores));
    return scores;
  }

  std::mt19937 random{7};
  IndexKeyLayout layout;
  int64_t num_heads;
  int64_t num_blocks;
  int64_t item_bytes;
  std::vector<std::byte> pool;
  std::vector<int64_t> offsets;
  std::vector<int32_t> table, sequences, visible;
  std::vector<float> q, weights;
};

std::string describe(CpuIsa isa, RowFormat format) {
  return std::string(cpu_isa_name(isa)) + ", format " + std::to_string(static_cast<int>(format));
}

// The scores of row t over its first `count` keys.
std::vector<float> row_scores(const Problem& problem, const std::vector<float>& scores, int64_t t,
                              int64_t count) {
  const auto first = scores.begin() + t * problem.width();
  return {first, first + count};
}

// Both round to f32; the sums of products differ by their order only.
void expect_close(const std::vector<float>& actual, const std::vector<float>& expected,
                  int64_t num_heads, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-5f * static_cast<float>(num_heads))
        << what << " at " << i;
  }
}

TEST(IndexScore, every_table_agrees_with_the_reference) {
  for (RowFormat format : kFormats) {
    for (const auto& [dim, heads] : {std::pair{128, 32}, {64, 4}, {128, 64}, {40, 3}, {7, 17}}) {
      Problem problem(format, dim, heads, {700, 90});
      for (int32_t visible : {700, 1, 64, 65, 513, 0}) problem.add_row(0, visible);
      for (int32_t visible : {90, 89}) problem.add_row(1, visible);
      std::vector<float> expected;
      index_score_ref(problem.params(expected));
      for (CpuIsa isa : kIsas) {
        if (!cpu_supports(isa)) continue;
        expect_close(problem.run(isa), expected, heads,
                     describe(isa, format) + ", dim " + std::to_string(dim) + ", heads " +
                         std::to_string(heads));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(IndexScore, writes_nothing_beyond_the_visible_keys) {
  for (CpuIsa isa : kIsas) {
    if (!cpu_supports(isa)) continue;
    Problem problem(RowFormat::kBf16, 128, 32, {640});
    for (int32_t visible : {0, 1, 63, 64, 77, 600}) problem.add_row(0, visible);
    const std::vector<float> scores = problem.run(isa);
    for (size_t t = 0; t < problem.visible.size(); ++t) {
      for (int64_t s = 0; s < problem.width(); ++s) {
        const bool written = scores[t * size_t(problem.width()) + size_t(s)] != kUntouched;
        ASSERT_EQ(written, s < problem.visible[t]) << cpu_isa_name(isa) << " " << t << " " << s;
      }
    }
  }
}

// Every visible score is the same.
void expect_one_score(const Problem& problem, const std::vector<float>& scores,
                      const std::string& what) {
  for (size_t t = 0; t < problem.visible.size(); ++t) {
    for (int32_t s = 0; s < problem.visible[t]; ++s) {
      ASSERT_EQ(scores[t * size_t(problem.width()) + size_t(s)], scores[0])
          << what << ", row " << t << ", key " << s;
    }
  }
}

TEST(IndexScore, a_score_does_not_depend_on_where_its_key_stands) {
  for (RowFormat format : kFormats) {
    for (CpuIsa isa : kIsas) {
      if (!cpu_supports(isa)) continue;
      Problem problem(format, 128, 32, {200});
      const std::vector<float> key = problem.values(128);
      for (int32_t s = 0; s < 200; ++s) problem.write_key(0, s, key);
      const std::vector<float> q = problem.values(32 * 128);
      const std::vector<float> weights = problem.values(32);
      for (int32_t visible : {200, 199, 67, 3, 1}) problem.add_row(0, visible, q, weights);
      expect_one_score(problem, problem.run(isa), describe(isa, format));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(IndexScore, a_row_does_not_depend_on_its_batch_or_on_threads) {
  for (RowFormat format : kFormats) {
    for (CpuIsa isa : kIsas) {
      if (!cpu_supports(isa)) continue;
      Problem batch(format, 128, 20, {1500, 1300});
      for (int i = 0; i < 40; ++i) batch.add_row(i % 3 == 0 ? 0 : 1, 1300 - 31 * i);
      set_num_kernel_threads(2);
      const std::vector<float> together = batch.run(isa);
      set_num_kernel_threads(1);
      EXPECT_EQ(batch.run(isa), together) << describe(isa, format);
      for (size_t t : {size_t{0}, size_t{17}, size_t{39}}) {
        Problem alone(format, 128, 20, {1500, 1300});
        const auto q = batch.q.begin() + static_cast<int64_t>(t) * 20 * 128;
        const auto weights = batch.weights.begin() + static_cast<int64_t>(t) * 20;
        alone.add_row(batch.sequences[t], batch.visible[t], {q, q + 20 * 128},
                      {weights, weights + 20});
        EXPECT_EQ(row_scores(alone, alone.run(isa), 0, alone.visible[0]),
                  row_scores(batch, together, static_cast<int64_t>(t), batch.visible[t]))
            << describe(isa, format) << ", row " << t;
      }
    }
  }
}

TEST(IndexScore, honours_negative_weights_and_relu) {
  for (CpuIsa isa : kIsas) {
    if (!cpu_supports(isa)) continue;
    Problem problem(RowFormat::kBf16, 2, 2, {1});
    problem.write_key(0, 0, {1.0f, 2.0f});
    // Head 0: 1 * 3 + 2 * 1 = 5, weight -2; head 1: 1 * -4 + 2 * 1 = -2, cut to 0.
    problem.add_row(0, 1, {3.0f, 1.0f, -4.0f, 1.0f}, {-2.0f, 100.0f});
    EXPECT_NEAR(problem.run(isa)[0], -10.0f / std::sqrt(2.0f), 1e-5f) << cpu_isa_name(isa);
  }
}

TEST(IndexScore, every_fp8_code_counts_at_its_value) {
  for (CpuIsa isa : kIsas) {
    if (!cpu_supports(isa)) continue;
    Problem problem(RowFormat::kFp8, 32, 1, {256});
    for (int32_t s = 0; s < 256; ++s) {  // dim 5 of key s is code s; scale 2^-3
      std::byte* page = problem.pages().at(problem.table[static_cast<size_t>(s / 64)]) + 48;
      std::memset(page + s % 64 * 32, 0, 32);
      page[s % 64 * 32 + 5] = static_cast<std::byte>(s);
      const float scale = 0.125f;
      std::memcpy(page + problem.layout.scales_offset() + s % 64 * 4, &scale, sizeof(scale));
    }
    std::vector<float> q(32, 0.0f);
    for (float sign : {1.0f, -1.0f}) {
      q[5] = sign;
      problem.add_row(0, 256, q, {1.0f});
    }
    std::vector<float> scores;
    IndexScoreParams params = problem.params(scores);
    params.softmax_scale = 1.0f;
    launch_index_score_with(index_score_table(isa, problem.layout), params);
    for (int32_t s = 0; s < 256; ++s) {
      const float value = f8e4m3_to_f32(static_cast<F8E4m3>(s)) * 0.125f;
      const float positive = scores[static_cast<size_t>(s)];
      const float negative = scores[256 + static_cast<size_t>(s)];
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(positive) && std::isnan(negative)) << cpu_isa_name(isa) << " " << s;
        continue;
      }
      EXPECT_EQ(positive, std::max(0.0f, value)) << cpu_isa_name(isa) << " " << s;
      EXPECT_EQ(negative, std::max(0.0f, -value)) << cpu_isa_name(isa) << " " << s;
    }
  }
}

TEST(IndexScore, accepts_an_empty_batch) {
  Problem problem(RowFormat::kFp8, 128, 32, {64});
  std::vector<float> scores;
  launch_index_score(problem.params(scores), Stream{});
  EXPECT_TRUE(scores.empty());
}

}  // namespace
}  // namespace dhs
