#include "kernels/sparse_attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/sparse_attention_problem.h"
#ifdef DHS_SIMT
#include "simt/emu/runtime.h"
#endif

namespace dhs {
namespace {

using Problem = test::AttentionProblem;
using test::attention_versions;
using test::AttentionVersion;

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8};

std::string describe(const AttentionVersion& version, RowFormat format) {
  return version.name + ", format " + std::to_string(static_cast<int>(format));
}

// Whether this program runs kernels too slowly for full-size problems.
bool is_slow() {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#elif defined(DHS_SIMT)
  return simt::accesses_are_checked();
#else
  return false;
#endif
}

// The largest difference, over the largest magnitude of the head it belongs to.
double relative_error(const std::vector<float>& actual, const std::vector<float>& expected,
                      int64_t head_size) {
  double worst = 0;
  for (size_t first = 0; first < expected.size(); first += static_cast<size_t>(head_size)) {
    double largest = 1e-30, difference = 0;
    for (size_t i = first; i < first + static_cast<size_t>(head_size); ++i) {
      largest = std::max(largest, std::fabs(double{expected[i]}));
      const double here = std::fabs(double{actual[i]} - expected[i]);
      difference = std::isnan(here) ? 1e30 : std::max(difference, here);
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

// The root mean square of the difference over that of the expected values.
double rms_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  double difference = 0, magnitude = 1e-60;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(double{actual[i]} - expected[i], 2);
    magnitude += std::pow(double{expected[i]}, 2);
  }
  return std::isnan(difference) ? 1e30 : std::sqrt(difference / magnitude);
}

void round_to_bf16(std::vector<float>& values) {
  for (float& value : values) value = bf16_to_f32(f32_to_bf16(value));
}

// f32 versions must be exact to 1e-5 in every element. A version that rounds to bf16 is compared
// with what the rounded q asks for: 2e-3 overall; an element may be off by 2^-8 of the latents'
// magnitude (5 at most here), which is what rounding every softmax weight to bf16 can do.
void expect_reference(Problem& problem, const std::string& what) {
  const std::vector<float> exact = problem.reference();
  for (const AttentionVersion& version : attention_versions(problem.layout)) {
    const std::string where = describe(version, problem.layout.format) + ", " + what;
    const std::vector<float> actual = problem.run(version);
    if (!version.rounds_to_bf16) {
      EXPECT_LE(relative_error(actual, exact, problem.layout.latent_dim), 1e-5) << where;
      continue;
    }
    Problem rounded = problem;
    round_to_bf16(rounded.q_latent);
    round_to_bf16(rounded.q_rope);
    const std::vector<float> expected = rounded.reference();
    EXPECT_LE(rms_error(actual, expected), 2e-3) << where;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 0x1p-8 * 5) << where << " at " << i;
    }
  }
}

TEST(SparseAttention, every_version_agrees_with_the_reference) {
  struct Shape {
    int32_t latent_dim, rope_dim;
    int64_t num_heads;
  };
  const std::vector<Shape> shapes =
      test::kOnCuda
          ? std::vector<Shape>{{64, 16, 5},   {32, 16, 64},  {128, 0, 33},
                               {48, 32, 1},   {256, 16, 16}, {16, 16, 128},
                               {128, 48, 70}, {7, 3, 5},     {24, 6, 9}}
          : std::vector<Shape>{{512, 64, 64}, {128, 32, 8}, {64, 0, 20}, {24, 6, 33}, {7, 3, 5}};
  const std::vector<int64_t> counts = test::kOnCuda
                                          ? std::vector<int64_t>{0, 1, 63, 64, 65, 280}
                                          : std::vector<int64_t>{260, 0, 1, 2, 63, 64, 65, 199};
  for (RowFormat format : kFormats) {
    for (const Shape& shape : shapes) {
      if (test::kOnCuda && format == RowFormat::kF32 && shape.num_heads > 16) continue;  // slow
      Problem problem({format, shape.latent_dim, shape.rope_dim}, shape.num_heads, 300, 290);
      for (int64_t count : counts) problem.add_row(problem.some_slots(count));
      expect_reference(problem, "latent " + std::to_string(shape.latent_dim));
    }
  }
}

TEST(SparseAttention, is_accurate_at_the_size_of_the_target_model) {
  const int64_t num_selected = is_slow() ? 70 : 2048;
  const int64_t num_heads = is_slow() ? 16 : 64;
  for (RowFormat format : kFormats) {
    Problem problem({format, 512, 64}, num_heads, num_selected + 30, 2048);
    problem.add_row(problem.some_slots(num_selected));
    expect_reference(problem, std::to_string(num_selected) + " rows");
  }
}

TEST(SparseAttention, stays_accurate_when_one_row_takes_all_the_weight) {
  for (RowFormat format : kFormats) {
    for (float scale : {1.0f, 20.0f}) {
      Problem problem({format, 128, 32}, 16, 300, 200);
      problem.scale = scale;
      problem.add_row(problem.some_slots(200));
      // At these scales a rounding error of one score moves weights by more than f32's own error.
      const std::vector<float> expected = problem.reference();
      for (const AttentionVersion& version : attention_versions(problem.layout)) {
        if (version.rounds_to_bf16) continue;
        EXPECT_LE(relative_error(problem.run(version), expected, 128), 1e-5 * (1 + 20 * scale))
            << describe(version, format) << ", scale " << scale;
      }
    }
  }
}

// Scores of +-20,000 and more: one row has all the weight, wherever in the selection it stands.
TEST(SparseAttention, gives_the_row_of_an_extreme_score_as_it_is) {
  for (RowFormat format : kFormats) {
    Problem problem({format, 128, 16}, 3, 300, 300);
    const std::vector<int32_t> selected = problem.some_slots(290);
    std::vector<float> expected;
    for (const size_t winner : {0, 70, 255, 256, 289}) {
      std::vector<float> row(128), rope(16);
      decode_row(problem.layout, problem.slot_row(selected[winner]), row.data(), rope.data());
      std::vector<float> q, q_rope(3 * 16, 0.0f);
      for (size_t i = 0; i < 3 * 128; ++i) {
        q.push_back(row[i % 128] * (i < 128 ? 1e3f : 1e4f));
        expected.push_back(row[i % 128]);
      }
      problem.scale = 1.0f;
      problem.add_row(selected, q, q_rope);
    }
    for (const AttentionVersion& version : attention_versions(problem.layout)) {
      EXPECT_EQ(problem.run(version), expected) << describe(version, format);
    }
  }
}

TEST(SparseAttention, equal_rows_come_out_as_they_are) {
  for (RowFormat format : kFormats) {
    Problem problem({format, 128, 32}, 8, 150, 140);
    const std::vector<float> latent = problem.values(128);
    for (int64_t slot = 0; slot < 150; ++slot) problem.write_row(slot, latent, problem.values(32));
    problem.add_row(problem.some_slots(140));
    std::vector<float> stored(128), rope(32);
    decode_row(problem.layout, problem.slot_row(0), stored.data(), rope.data());
    for (const AttentionVersion& version : attention_versions(problem.layout)) {
      const std::vector<float> out = problem.run(version);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], stored[i % 128], 3e-6f * std::fabs(stored[i % 128]))
            << describe(version, format);
      }
    }
  }
}

TEST(SparseAttention, a_single_row_comes_out_bit_for_bit) {
  std::vector<float> latent;  // every e4m3 value twice, at a scale of its own per group of 128
  for (int i = 0; i < 512; ++i) {
    const int code = i % 256;
    const float value = f8e4m3_to_f32(static_cast<F8E4m3>(code));
    latent.push_back(std::isnan(value) ? 0.0f : value * (code < 128 ? 0x1p-5f : 0x1p4f));
  }
  for (RowFormat format : kFormats) {
    Problem problem({format, 512, 32}, 3, 4, 4);
    problem.write_row(2, latent, problem.values(32));
    problem.add_row({2});
    for (const AttentionVersion& version : attention_versions(problem.layout)) {
      const std::vector<float> out = problem.run(version);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], latent[i % 512]) << describe(version, format) << " at " << i;
      }
    }
  }
}

TEST(SparseAttention, gives_zeros_for_a_row_without_slots) {
  for (int64_t top_k : {16, 300}) {  // one segment of the selection, and several
    Problem problem({RowFormat::kBf16, 512, 64}, 64, 8, top_k);
    problem.add_row({});
    for (const AttentionVersion& version : attention_versions(problem.layout)) {
      const std::vector<float> out = problem.run(version);
      EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return x == 0.0f; }))
          << version.name << ", " << top_k;
    }
  }
}

// Each of the query rows of `batch`, run alone, has the bits it has in `together`.
void expect_rows_alone(const Problem& batch, const AttentionVersion& version,
                       const std::vector<float>& together, const std::string& what) {
  const int64_t latent_size = batch.num_heads * batch.layout.latent_dim;
  const int64_t rope_size = batch.num_heads * batch.layout.rope_dim;
  for (int64_t t = 0; t < batch.num_rows(); ++t) {
    Problem alone(batch.layout, batch.num_heads, batch.num_slots, batch.top_k);
    const auto slots = batch.slots.begin() + t * batch.top_k;
    const auto latent = batch.q_latent.begin() + t * latent_size;
    const auto rope = batch.q_rope.begin() + t * rope_size;
    alone.add_row({slots, slots + batch.top_k}, {latent, latent + latent_size},
                  {rope, rope + rope_size});
    const auto expected = together.begin() + t * latent_size;
    EXPECT_EQ(alone.run(version), std::vector<float>(expected, expected + latent_size))
        << what << ", row " << t;
  }
}

#if !DHS_TEST_CUDA
TEST(SparseAttention, a_row_does_not_depend_on_its_batch_or_on_threads) {
  for (RowFormat format : kFormats) {
    Problem batch({format, 128, 32}, 70, 300, 200);
    for (int64_t count : {200, 3, 130, 0, 77, 64}) batch.add_row(batch.some_slots(count));
    for (const AttentionVersion& version : attention_versions(batch.layout)) {
      set_num_kernel_threads(1);
      const std::vector<float> together = batch.run(version);
      for (int threads : {1, 2, 8}) {  // 8: more threads than rows, so heads are split
        set_num_kernel_threads(threads);
        const std::string what = describe(version, format) + ", threads " + std::to_string(threads);
        EXPECT_EQ(batch.run(version), together) << what;
        expect_rows_alone(batch, version, together, what);
      }
    }
  }
}
#else
TEST(SparseAttention, a_row_does_not_depend_on_its_batch) {
  for (RowFormat format : kFormats) {
    Problem batch({format, 32, 16}, 20, 600, 600);
    for (int64_t count : {530, 3, 256, 0, 257, 64}) {
      batch.add_row(batch.some_slots(count));
    }
    for (const AttentionVersion& version : attention_versions(batch.layout)) {
      expect_rows_alone(batch, version, batch.run(version), describe(version, format));
    }
  }
}

struct Spread {
  int32_t heads_per_block, segments_per_block;
  int64_t rows_in_scratch;
};

TEST(SparseAttention, does_not_depend_on_how_its_work_is_spread) {
  for (RowFormat format : kFormats) {
    Problem problem({format, 32, 16}, 34, 520, 520);
    for (int64_t count : {520, 0, 256, 257}) problem.add_row(problem.some_slots(count));
    const std::vector<float> expected = problem.run(attention_versions(problem.layout)[0]);
    for (const Spread& spread : {Spread{16, 1, 1},
                                 {32, 2, 2},
                                 {64, 1, 8},
                                 {16, 3, 0},
                                 {32, 3, 0},
                                 {64, 3, 0},
                                 {16, 1, 0}}) {
      if (format == RowFormat::kF32 && spread.heads_per_block != 16) continue;  // has no choice
      Stream stream = test::stream();
      stream.scratch_bytes = 512 + spread.rows_in_scratch * 3 * 34 * (32 + 2) * 4;
      const auto launch = [&](const SparseAttentionParams& params) {
        test::launch_spread(
            params, {AttentionKernel::kMma, spread.heads_per_block, spread.segments_per_block},
            stream);
      };
      EXPECT_EQ(problem.run({"", true, launch}), expected)
          << spread.heads_per_block << " heads, " << spread.segments_per_block << " segments, "
          << spread.rows_in_scratch << " rows in the scratch";
    }
  }
}

TEST(SparseAttention, warpgroups_give_the_same_bits_however_their_work_is_spread) {
  if (!test::device_has_warpgroups()) {
    std::printf("not run: only devices of compute capability 9.0 have warpgroup products\n");
    return;
  }
  for (RowFormat format : {RowFormat::kBf16, RowFormat::kFp8}) {
    Problem problem({format, 128, 32}, 70, 620, 600);
    for (int64_t count : {600, 0, 257}) problem.add_row(problem.some_slots(count));
    std::vector<float> expected;
    for (const Spread& spread : {Spread{64, 3, 0}, {64, 1, 8}, {64, 2, 1}}) {
      Stream stream = test::warpgroup_stream();
      stream.scratch_bytes = 512 + spread.rows_in_scratch * 3 * 70 * (128 + 2) * 4;
      const auto launch = [&](const SparseAttentionParams& params) {
        test::launch_spread(params, {AttentionKernel::kWarpgroup, 64, spread.segments_per_block},
                            stream);
      };
      const std::vector<float> actual = problem.run({"", true, launch});
      if (expected.empty()) expected = actual;
      EXPECT_EQ(actual, expected) << describe({"", true, launch}, format) << ", "
                                  << spread.segments_per_block << " segments, "
                                  << spread.rows_in_scratch << " rows in the scratch";
    }
  }
}

// A ring that holds one tile and a part of the next one is filled in two steps.
TEST(SparseAttention, does_not_depend_on_how_far_it_prefetches) {
  Problem problem({RowFormat::kBf16, 64, 32}, 20, 400, 400);
  for (int64_t count : {400, 150}) problem.add_row(problem.some_slots(count));
  problem.lose_slots(std::byte{0xff});
  const std::vector<float> expected = problem.run(attention_versions(problem.layout)[0]);
  const std::vector<std::byte> expected_pool = problem.pool_after;
  for (int32_t ring_rows : {64, 80, 112, 128}) {
    const std::vector<float> actual =
        problem.run({"", true, [&](const SparseAttentionParams& params) {
                       AttentionConfig config =
                           make_attention_config(test::attention_desc(params, test::stream()),
                                                 {AttentionKernel::kMma, 32, 1});
                       config.ring_rows = ring_rows;
                       config.shared_bytes = tensor_core_shared_bytes(params.layout, 32, ring_rows);
                       launch_sparse_attention_as(config, params, test::stream());
                     }});
    EXPECT_EQ(actual, expected) << ring_rows;
    EXPECT_EQ(problem.pool_after, expected_pool) << ring_rows;
  }
}
#endif

TEST(SparseAttention, does_not_depend_on_slot_numbers) {
  for (RowFormat format : kFormats) {
    Problem problem({format, 128, 32}, 16, 300, 150);
    std::vector<int32_t> there(150);
    for (int32_t i = 0; i < 150; ++i) {
      const std::vector<float> latent = problem.values(128), rope = problem.values(32);
      problem.write_row(i, latent, rope);
      problem.write_row(299 - i, latent, rope);
      there[static_cast<size_t>(i)] = 299 - i;
    }
    std::vector<int32_t> here(150);
    std::iota(here.begin(), here.end(), 0);
    const std::vector<float> latent = problem.values(16 * 128), rope = problem.values(16 * 32);
    problem.add_row(here, latent, rope);
    problem.add_row(there, latent, rope);
    for (const AttentionVersion& version : attention_versions(problem.layout)) {
      const std::vector<float> out = problem.run(version);
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + 16 * 128, out.begin() + 16 * 128))
          << describe(version, format);
    }
  }
}

TEST(SparseAttention, does_not_depend_on_the_width_of_the_selection) {
  Problem narrow({RowFormat::kBf16, 128, 32}, 16, 300, 100);
  Problem wide({RowFormat::kBf16, 128, 32}, 16, 300, 600);
  const std::vector<int32_t> slots = narrow.some_slots(100);
  const std::vector<float> latent = narrow.values(16 * 128), rope = narrow.values(16 * 32);
  narrow.add_row(slots, latent, rope);
  wide.add_row(slots, latent, rope);
  for (const AttentionVersion& version : attention_versions(narrow.layout)) {
    EXPECT_EQ(wide.run(version), narrow.run(version)) << version.name;
  }
}

// Fused retrieval: as if the missing rows had been there, and afterwards they are. Of a record,
// only this layer's row is written.
TEST(SparseAttention, fetches_missing_rows_itself_and_leaves_them_in_their_slots) {
  for (RowFormat format : kFormats) {
    for (const int32_t latent_dim : {64, 128, 20}) {
      Problem problem({format, latent_dim, 16}, 18, 330, 300);
      for (int64_t count : {270, 0, 5, 130}) problem.add_row(problem.some_slots(count));
      Problem missing = problem;
      missing.lose_slots(std::byte{0xff});
      ASSERT_GT(missing.orders.size(), 80u);
      std::vector<std::byte> filled = missing.pool;
      missing.pool.swap(filled);
      for (const FetchOrder& order : missing.orders) {
        std::copy_n(problem.slot_row(order.slot), problem.layout.row_bytes(),
                    missing.slot_row(order.slot));
      }
      missing.pool.swap(filled);
      for (const AttentionVersion& version : attention_versions(problem.layout)) {
        const std::string what = describe(version, format) + ", " + std::to_string(latent_dim);
        EXPECT_EQ(missing.run(version), problem.run(version)) << what;
        EXPECT_EQ(missing.pool_after, filled) << what;
      }
    }
  }
}

#ifdef DHS_SIMT
// Several blocks want one missing row: all read the host block, one writes the slot.
TEST(SparseAttention, no_block_touches_what_another_writes) {
  simt::options().global_races = true;
  for (RowFormat format : kFormats) {
    for (int32_t segments : {1, 2}) {
      Problem problem({format, 32, 16}, 20, 310, 300);
      for (int64_t count : {300, 40}) problem.add_row(problem.some_slots(count));
      const std::vector<float> expected = problem.run(attention_versions(problem.layout)[0]);
      problem.lose_slots(std::byte{0xff});
      const auto launch = [&](const SparseAttentionParams& params) {
        test::launch_spread(params, {AttentionKernel::kMma, 16, segments}, test::stream());
      };
      EXPECT_EQ(problem.run({"", true, launch}), expected);
    }
  }
  for (RowFormat format : {RowFormat::kBf16, RowFormat::kFp8}) {
    Problem problem({format, 128, 16}, 70, 140, 300);
    for (int64_t count : {130, 40}) problem.add_row(problem.some_slots(count));
    problem.lose_slots(std::byte{0xff});
    for (const AttentionVersion& version : attention_versions(problem.layout)) {
      problem.run(version);  // reports races by itself
    }
  }
  simt::options().global_races = false;
}
#endif

TEST(SparseAttention, takes_no_query_rows_as_nothing_to_do) {
  for (const AttentionVersion& version : attention_versions({RowFormat::kBf16, 128, 16})) {
    SparseAttentionParams params;
    params.layout = {RowFormat::kBf16, 128, 16};
    params.slots = view<const int32_t>(nullptr, 0, 16);
    params.out = view<float>(nullptr, 0, 4, 128);
    version.launch(params);
  }
  test::synchronize();
}

}  // namespace
}  // namespace dhs
