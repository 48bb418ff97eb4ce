#include "kernels/index_score/index_score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/index_score/index_score_config.h"
#include "kernels/index_score/index_score_tables.h"
#include "kernels/test_memory.h"
#ifdef DHS_SIMT
#include "simt/emu/runtime.h"
#endif

namespace dhs {
namespace {

using Shape = std::pair<int32_t, int64_t>;  // index_dim, num_heads

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8};
constexpr float kUntouched = 12345.0f;
constexpr int64_t kGroupOffset = 48;
constexpr int64_t kItemPadding = 112;
constexpr int32_t kItemsPerChunk = 2;

// One way to score: a table of the CPU, or the CUDA kernels.
struct Version {
  std::string name;
  void (*launch)(const IndexScoreParams& params);
};

#if DHS_TEST_CUDA
std::vector<Version> versions() {
  return {
      {"CUDA", [](const IndexScoreParams& params) { launch_index_score(params, test::stream()); }}};
}
#else
template <CpuIsa kIsa>
void launch_isa(const IndexScoreParams& params) {
  launch_index_score_with(index_score_table(kIsa, params.layout), params);
}

template <CpuIsa kIsa>
void add_version(std::vector<Version>& made) {
  if (cpu_supports(kIsa)) made.push_back({cpu_isa_name(kIsa), launch_isa<kIsa>});
}

std::vector<Version> versions() {
  std::vector<Version> made;
  add_version<CpuIsa::kBase>(made);
  add_version<CpuIsa::kAvx2>(made);
  add_version<CpuIsa::kAvx512>(made);
  add_version<CpuIsa::kAvx512Bf16>(made);
  return made;
}
#endif

// Sequences with their keys in scattered pages, and query rows over them.
struct Problem {
  Problem(RowFormat format, Shape shape, const std::vector<int32_t>& lengths)
      : layout{format, shape.first, 64}, num_heads(shape.second), num_blocks(1) {
    for (int32_t length : lengths) num_blocks = std::max<int64_t>(num_blocks, (length + 63) / 64);
    const auto num_items = static_cast<int64_t>(lengths.size()) * num_blocks;
    const int64_t num_chunks = (num_items + kItemsPerChunk - 1) / kItemsPerChunk;
    item_bytes = layout.page_bytes() + kItemPadding;
    pool.resize(static_cast<size_t>(num_chunks * kItemsPerChunk * item_bytes));
    for (int64_t c = num_chunks; c-- > 0;) offsets.push_back(c * kItemsPerChunk * item_bytes);
    table.resize(static_cast<size_t>(num_items));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), random);
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int32_t k = 0; k < num_blocks * 64; ++k) write_key(s, k, values(layout.index_dim));
    }
  }

  std::vector<float> values(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> made(static_cast<size_t>(count));
    for (float& value : made) value = normal(random);
    return made;
  }

  std::byte* page(size_t sequence, int32_t block) {
    const auto place = static_cast<size_t>(static_cast<int64_t>(sequence) * num_blocks + block);
    const ChunkedItems pages{pool.data(), offsets.data(), kItemsPerChunk, item_bytes};
    return pages.at(table[place]) + kGroupOffset;
  }

  void write_key(size_t sequence, int32_t position, const std::vector<float>& key) {
    encode_index_key(layout, key.data(), position % 64, page(sequence, position / 64));
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

  int64_t num_rows() const { return static_cast<int64_t>(visible.size()); }
  int64_t width() const { return num_blocks * 64; }

  // Over its own memory.
  IndexScoreParams params(std::vector<float>& scores) {
    scores.assign(static_cast<size_t>(num_rows() * width()), kUntouched);
    IndexScoreParams made;
    made.layout = layout;
    made.pages = {pool.data(), offsets.data(), kItemsPerChunk, item_bytes};
    made.group_offset = kGroupOffset;
    made.item_table = view<const int32_t>(
        table.data(), static_cast<int64_t>(table.size()) / num_blocks, num_blocks);
    made.q = view<const float>(q.data(), num_rows(), num_heads, layout.index_dim);
    made.head_weights = view<const float>(weights.data(), num_rows(), num_heads);
    made.sequence_of_row = view<const int32_t>(sequences.data(), num_rows());
    made.visible = view<const int32_t>(visible.data(), num_rows());
    made.softmax_scale = softmax_scale;
    made.scores = view(scores.data(), num_rows(), width());
    return made;
  }

  // By a version, over memory that its launches reach.
  std::vector<float> run(const Version& version) {
    std::vector<float> scores;
    IndexScoreParams made = params(scores);
    const test::DeviceArray<std::byte> device_pool(pool);
    const test::DeviceArray<int64_t> device_offsets(offsets);
    const test::DeviceArray<int32_t> device_table(table), device_sequences(sequences),
        device_visible(visible);
    const test::DeviceArray<float> device_q(q), device_weights(weights), device_scores(scores);
    made.pages.pool = device_pool.data();
    made.pages.chunk_offset = device_offsets.data();
    made.item_table.data = device_table.data();
    made.q.data = device_q.data();
    made.head_weights.data = device_weights.data();
    made.sequence_of_row.data = device_sequences.data();
    made.visible.data = device_visible.data();
    made.scores.data = device_scores.data();
    version.launch(made);
    return device_scores.download();
  }

  std::vector<float> reference() {
    std::vector<float> scores;
    index_score_ref(params(scores));
    return scores;
  }

  // A batch of row t alone.
  Problem only(size_t t) const {
    Problem made = *this;
    const auto first_q = q.begin() + static_cast<int64_t>(t) * num_heads * layout.index_dim;
    const auto first_weight = weights.begin() + static_cast<int64_t>(t) * num_heads;
    made.q = {first_q, first_q + num_heads * layout.index_dim};
    made.weights = {first_weight, first_weight + num_heads};
    made.sequences = {sequences[t]};
    made.visible = {visible[t]};
    return made;
  }

  std::mt19937 random{7};
  IndexKeyLayout layout;
  int64_t num_heads;
  int64_t num_blocks;
  int64_t item_bytes;
  float softmax_scale = 1.0f / std::sqrt(static_cast<float>(layout.index_dim));
  std::vector<std::byte> pool;
  std::vector<int64_t> offsets;
  std::vector<int32_t> table, sequences, visible;
  std::vector<float> q, weights;
};

std::string describe(const Version& version, RowFormat format) {
  return version.name + ", format " + std::to_string(static_cast<int>(format));
}

// The scores of row t over its visible keys.
std::vector<float> row_scores(const Problem& problem, const std::vector<float>& scores, size_t t) {
  const auto first = scores.begin() + static_cast<int64_t>(t) * problem.width();
  return {first, first + problem.visible[t]};
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

TEST(IndexScore, every_version_agrees_with_the_reference) {
  const int32_t longest = test::kOnCuda ? 200 : 700;
  for (RowFormat format : kFormats) {
    for (Shape shape : {Shape{128, 32},
                        {64, 4},
                        {128, 64},
                        {40, 3},
                        {7, 17},
                        {16, 1},
                        {96, 33},
                        {256, 5},
                        {128, 70}}) {
      Problem problem(format, shape, {longest, 90});
      for (int32_t visible : {longest, 1, 64, 65, longest / 2, 0}) problem.add_row(0, visible);
      for (int32_t visible : {90, 89}) problem.add_row(1, visible);
      const std::vector<float> expected = problem.reference();
      for (const Version& version : versions()) {
        expect_close(problem.run(version), expected, shape.second,
                     describe(version, format) + ", dim " + std::to_string(shape.first) +
                         ", heads " + std::to_string(shape.second));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Scores are written where a key is visible, and nowhere else.
void expect_written_where_visible(const Problem& problem, const std::vector<float>& scores,
                                  const std::string& what) {
  for (size_t t = 0; t < problem.visible.size(); ++t) {
    for (int64_t s = 0; s < problem.width(); ++s) {
      const bool written = scores[t * size_t(problem.width()) + size_t(s)] != kUntouched;
      ASSERT_EQ(written, s < problem.visible[t]) << what << " " << t << " " << s;
    }
  }
}

TEST(IndexScore, writes_nothing_beyond_the_visible_keys) {
  for (RowFormat format : kFormats) {
    for (const Version& version : versions()) {
      Problem problem(format, {128, 32}, {640});
      for (int32_t visible : {0, 1, 63, 64, 77, test::kOnCuda ? 200 : 600}) {
        problem.add_row(0, visible);
      }
      expect_written_where_visible(problem, problem.run(version), describe(version, format));
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
    for (const Version& version : versions()) {
      for (int64_t num_heads : {32, 64}) {
        Problem problem(format, {128, num_heads}, {200});
        const std::vector<float> key = problem.values(128);
        for (int32_t s = 0; s < 200; ++s) problem.write_key(0, s, key);
        const std::vector<float> q = problem.values(num_heads * 128);
        const std::vector<float> weights = problem.values(num_heads);
        for (int32_t visible : {200, 199, 67, 3, 1}) problem.add_row(0, visible, q, weights);
        expect_one_score(problem, problem.run(version), describe(version, format));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows of two sequences in runs of one to three, one of them padding of a captured batch.
Problem mixed_batch(RowFormat format, Shape shape) {
  const int num_rows = test::kOnCuda ? 11 : 40;
  const int32_t longest = test::kOnCuda ? 330 : 1300;
  Problem batch(format, shape, {longest + 200, longest});
  for (int i = 0; i < num_rows; ++i) batch.add_row(i % 3 == 0 ? 0 : 1, longest - 31 * i);
  batch.add_row(0, 0);
  return batch;
}

void expect_batch_invariance(const Version& version, RowFormat format, Shape shape) {
  Problem batch = mixed_batch(format, shape);
  const std::vector<float> together = batch.run(version);
  for (size_t t : {size_t{0}, size_t{7}, batch.visible.size() - 2}) {
    Problem alone = batch.only(t);
    EXPECT_EQ(row_scores(alone, alone.run(version), 0), row_scores(batch, together, t))
        << describe(version, format) << ", heads " << shape.second << ", row " << t;
  }
}

TEST(IndexScore, a_row_does_not_depend_on_its_batch) {
  for (RowFormat format : kFormats) {
    for (Shape shape : {Shape{128, 20}, {64, 64}, {24, 5}}) {
      for (const Version& version : versions()) expect_batch_invariance(version, format, shape);
    }
  }
}

TEST(IndexScore, keys_that_no_row_sees_may_hold_anything) {
  for (RowFormat format : kFormats) {
    for (const Version& version : versions()) {
      Problem problem(format, {64, 8}, {128});
      problem.add_row(0, 70);
      problem.add_row(0, 75);
      const std::vector<float> expected = problem.run(version);
      const std::vector<float> infinite(64, std::numeric_limits<float>::infinity());
      for (int32_t s = 75; s < 128; ++s) problem.write_key(0, s, infinite);
      EXPECT_EQ(problem.run(version), expected) << describe(version, format);
    }
  }
}

#if !DHS_TEST_CUDA
TEST(IndexScore, a_row_does_not_depend_on_threads) {
  for (RowFormat format : kFormats) {
    for (const Version& version : versions()) {
      Problem batch = mixed_batch(format, {128, 20});
      set_num_kernel_threads(2);
      const std::vector<float> together = batch.run(version);
      set_num_kernel_threads(1);
      EXPECT_EQ(batch.run(version), together) << describe(version, format);
    }
  }
}
#endif

TEST(IndexScore, honours_negative_weights_and_relu) {
  for (const Version& version : versions()) {
    for (int32_t dim : {2, 16}) {
      Problem problem(RowFormat::kBf16, {dim, 2}, {1});
      std::vector<float> key(static_cast<size_t>(dim)), q(static_cast<size_t>(dim) * 2);
      key[0] = 1.0f;
      key[1] = 2.0f;
      q[0] = 3.0f;
      q[1] = 1.0f;
      q[static_cast<size_t>(dim)] = -4.0f;
      q[static_cast<size_t>(dim) + 1] = 1.0f;
      problem.write_key(0, 0, key);
      // Head 0: 1 * 3 + 2 * 1 = 5, weight -2; head 1: 1 * -4 + 2 * 1 = -2, cut to 0.
      problem.add_row(0, 1, q, {-2.0f, 100.0f});
      EXPECT_NEAR(problem.run(version)[0], -10.0f * problem.softmax_scale, 1e-5f) << version.name;
    }
  }
}

// Dim 5 of key s is code s, the scale 2^-3, everything else zero.
Problem every_code(int32_t dim) {
  Problem problem(RowFormat::kFp8, {dim, 1}, {256});
  problem.softmax_scale = 1.0f;
  for (int32_t s = 0; s < 256; ++s) {
    std::byte* page = problem.page(0, s / 64);
    std::memset(page + s % 64 * dim, 0, static_cast<size_t>(dim));
    page[s % 64 * dim + 5] = static_cast<std::byte>(s);
    const float scale = 0.125f;
    std::memcpy(page + problem.layout.scales_offset() + s % 64 * 4, &scale, sizeof(scale));
  }
  std::vector<float> q(static_cast<size_t>(dim), 0.0f);
  for (float sign : {1.0f, -1.0f}) {
    q[5] = sign;
    problem.add_row(0, 256, q, {1.0f});
  }
  return problem;
}

void expect_value_of_code(int32_t code, float positive, float negative, const std::string& what) {
  const float value = f8e4m3_to_f32(static_cast<F8E4m3>(code)) * 0.125f;
  if (std::isnan(value)) {
    EXPECT_TRUE(std::isnan(positive) && std::isnan(negative)) << what << " " << code;
    return;
  }
  EXPECT_EQ(positive, std::max(0.0f, value)) << what << " " << code;
  EXPECT_EQ(negative, std::max(0.0f, -value)) << what << " " << code;
}

TEST(IndexScore, every_fp8_code_counts_at_its_value) {
  for (const Version& version : versions()) {
    for (int32_t dim : {32, 20}) {
      const std::vector<float> scores = every_code(dim).run(version);
      for (int32_t s = 0; s < 256; ++s) {
        expect_value_of_code(s, scores[size_t(s)], scores[256 + size_t(s)], version.name);
      }
    }
  }
}

TEST(IndexScore, accepts_an_empty_batch) {
  for (const Version& version : versions()) {
    Problem problem(RowFormat::kFp8, {128, 32}, {64});
    EXPECT_TRUE(problem.run(version).empty());
  }
}

#ifdef DHS_SIMT
TEST(IndexScore, no_two_threads_write_one_score) {
  simt::options().global_races = true;
  for (RowFormat format : kFormats) {
    Problem problem(format, {32, 3}, {150});
    for (int32_t visible : {150, 100, 0}) problem.add_row(0, visible);
    expect_close(problem.run(versions()[0]), problem.reference(), 3, "with races watched");
  }
  simt::options().global_races = false;
}
#endif

// ---- The choice of a CUDA configuration ---------------------------------------------------------

IndexScoreConfig pick(RowFormat format, Shape shape, int64_t num_rows, int64_t max_keys) {
  return pick_index_score_config({.layout = {format, shape.first, 64},
                                  .num_heads = shape.second,
                                  .num_rows = num_rows,
                                  .max_keys = max_keys,
                                  .num_sms = 132});
}

TEST(IndexScoreConfig, three_blocks_of_a_served_shape_fit_an_sm) {
  constexpr int64_t kSmBytes = 228 << 10, kReservedBytes = 1 << 10;
  for (RowFormat format : {RowFormat::kBf16, RowFormat::kFp8}) {
    for (int64_t num_heads : {32, 64}) {
      for (int64_t num_rows : {1, 5, 512}) {
        const IndexScoreConfig config = pick(format, {128, num_heads}, num_rows, 1 << 17);
        EXPECT_TRUE(config.tensor_cores);
        EXPECT_LE(3 * (config.shared_bytes + kReservedBytes), kSmBytes);
      }
    }
  }
}

TEST(IndexScoreConfig, few_rows_get_many_splits_and_many_rows_few) {
  const IndexScoreConfig one = pick(RowFormat::kFp8, {128, 64}, 1, 1 << 20);
  EXPECT_EQ(one.rows_per_block, 1);
  EXPECT_EQ(one.num_splits, 132 * 8);
  const IndexScoreConfig many = pick(RowFormat::kFp8, {128, 64}, 4096, 1 << 20);
  EXPECT_EQ(many.rows_per_block, 2);
  EXPECT_EQ(many.num_splits, 1);
  EXPECT_EQ(pick(RowFormat::kFp8, {128, 32}, 4096, 1 << 20).rows_per_block, 4);
}

TEST(IndexScoreConfig, never_takes_more_splits_than_pages) {
  EXPECT_EQ(pick(RowFormat::kBf16, {128, 32}, 1, 640).num_splits, 10);
  EXPECT_EQ(pick(RowFormat::kF32, {128, 32}, 1, 0).num_splits, 1);
}

TEST(IndexScoreConfig, what_decides_a_scores_bits_does_not_depend_on_the_batch) {
  for (Shape shape : {Shape{128, 64}, {128, 33}, {64, 5}, {256, 100}}) {
    const IndexScoreConfig one = pick(RowFormat::kFp8, shape, 1, 64);
    const IndexScoreConfig many = pick(RowFormat::kFp8, shape, 700, 1 << 20);
    EXPECT_EQ(one.tensor_cores, many.tensor_cores);
    EXPECT_EQ(one.dim_chunks, many.dim_chunks);
    EXPECT_EQ(one.head_warps, many.head_warps);
    EXPECT_EQ(one.padded_heads, many.padded_heads);
  }
}

TEST(IndexScoreConfig, other_shapes_go_without_tensor_cores) {
  EXPECT_FALSE(pick(RowFormat::kF32, {128, 64}, 1, 64).tensor_cores);
  EXPECT_FALSE(pick(RowFormat::kFp8, {40, 64}, 1, 64).tensor_cores);
  EXPECT_FALSE(pick(RowFormat::kBf16, {272, 64}, 1, 64).tensor_cores);
}

}  // namespace
}  // namespace dhs
