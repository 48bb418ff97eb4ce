// The parts of gemm that run on the host: the CPU's panels on every path this machine has, weights
// in blocks, and the choice of tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/gemm/fp8_blocks.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/gemm/gemm_tables.h"
#include "kernels/gemm/panel_loop.h"
#include "kernels/gemm/panel_verify.h"
#include "kernels/gemm_fixture.h"

namespace dhs::test {
namespace {

// Panel boundaries, library block boundaries, tails on both axes, and single elements.
constexpr Shape kShapes[] = {{1, 1},    {1, 64},    {64, 1},     {64, 64},   {100, 37}, {32, 1024},
                             {129, 65}, {256, 128}, {1024, 256}, {700, 513}, {65, 2100}};

struct Path {
  GemmPrecision precision;
  GemmMath math;
  std::optional<TileRule> rule;
};

std::vector<Path> all_paths() {
  std::vector<Path> paths;
  for (GemmPrecision precision : {GemmPrecision::kF32, GemmPrecision::kBf16}) {
    for (GemmMath math : supported_gemm_math(precision)) {
      paths.push_back({precision, math, std::nullopt});
      paths.push_back({precision, math, TileRule::kFixedTile});
      paths.push_back({precision, math, TileRule::kOwnLoop});
    }
  }
  return paths;
}

PackedMatrixPtr packed_as(const Path& path, const std::vector<float>& w, Shape shape) {
  auto matrix = make_packed_matrix_as({path.precision, 1, shape.n, shape.k}, path.math, path.rule);
  EXPECT_TRUE(pack_into(*matrix, 0, view(w.data(), shape.n, shape.k), Stream{}));
  return matrix;
}

TEST(PanelGemm, equals_the_reference_and_keeps_a_rows_bits_on_every_path) {
  constexpr int64_t kRows = 150;
  for (Shape shape : kShapes) {
    const auto w = random_floats(shape.n * shape.k, 3);
    const auto a = random_floats(kRows * shape.k, 4);
    for (const Path& path : all_paths()) {
      const auto matrix = packed_as(path, w, shape);
      const auto all = product(*matrix, a);
      expect_reference(path.precision, w, shape, a, all);
      if (HasFatalFailure()) return;
      for (int64_t m : {1, 2, 3, 4, 7, 8, 12, 13, 16, 23, 33, 48, 63, 64, 65, 100}) {
        const int64_t first = (m * 37) % (kRows - m + 1);
        std::vector<int64_t> rows(static_cast<size_t>(m));
        std::iota(rows.begin(), rows.end(), first);
        ASSERT_EQ(bits_of(product(*matrix, rows_of(a, shape.k, rows))),
                  bits_of(rows_of(all, shape.n, rows)))
            << describe(path.precision, shape) << ", math " << static_cast<int>(path.math)
            << ", rule " << (path.rule ? static_cast<int>(*path.rule) : -1) << ", m " << m;
      }
    }
  }
}

TEST(PanelGemm, gives_the_same_bits_with_one_thread_and_with_two) {
  constexpr Shape kShape{1024, 1030};  // large enough that threads are used
  const auto w = random_floats(kShape.n * kShape.k, 5);
  const auto a = random_floats(64 * kShape.k, 6);
  std::vector<Path> paths = all_paths();
  paths.push_back({GemmPrecision::kFp8, GemmMath::kFp8, std::nullopt});
  for (const Path& path : paths) {
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2}) {
      set_num_kernel_threads(threads);
      results.push_back(product(*packed_as(path, w, kShape), a));
    }
    set_num_kernel_threads(0);
    EXPECT_EQ(results[0], results[1]) << static_cast<int>(path.math);
  }
}

TEST(PanelGemm, says_when_the_fixed_tile_is_in_use) {
  const auto w = random_floats(64 * 64, 13);
  const Path any{GemmPrecision::kF32, GemmMath::kF32, TileRule::kAnyTile};
  const Path fixed{GemmPrecision::kF32, GemmMath::kF32, TileRule::kFixedTile};
  EXPECT_TRUE(packed_matrix_uses_any_tile(*packed_as(any, w, {64, 64})));
  EXPECT_FALSE(packed_matrix_uses_any_tile(*packed_as(fixed, w, {64, 64})));
}

// The loop kernel with a flaw: a last-bit error in the first column of the rows that `is_flawed`
// names.
class FlawedKernel : public PanelKernel {
 public:
  using Flaw = std::function<bool(int tile_rows, int place)>;
  FlawedKernel(int64_t columns, int64_t k, Flaw is_flawed)
      : honest_(make_loop_kernel(GemmMath::kF32, columns, k)),
        columns_(columns),
        is_flawed_(std::move(is_flawed)) {}
  TileRule rule() const override { return TileRule::kAnyTile; }
  int64_t packed_bytes() const override { return honest_->packed_bytes(); }
  std::unique_ptr<PanelWeights> pack(TensorView<const float, 2> w,
                                     std::byte* packed) const override {
    return honest_->pack(w, packed);
  }
  const float* run(const PanelWeights& weights, int tile_rows, const void* a) const override {
    const float* result = honest_->run(weights, tile_rows, a);
    out_.assign(result, result + tile_rows * columns_);
    for (int place = 0; place < tile_rows; ++place) {
      float& value = out_[static_cast<size_t>(place * columns_)];
      if (is_flawed_(tile_rows, place)) value = std::nextafter(value, 1e9f);
    }
    return out_.data();
  }

 private:
  const std::unique_ptr<PanelKernel> honest_;
  const int64_t columns_;
  const Flaw is_flawed_;
  mutable std::vector<float> out_;
};

TEST(PanelVerify, trusts_a_kernel_that_keeps_bits) {
  const FlawedKernel kernel(5, 40, [](int, int) { return false; });
  EXPECT_EQ(verified_rule(kernel, GemmMath::kF32, 5, 40), TileRule::kAnyTile);
}

TEST(PanelVerify, falls_back_to_the_fixed_tile_when_one_tile_size_rounds_differently) {
  for (int size : kTileRows) {
    const FlawedKernel kernel(5, 40, [size](int tile_rows, int) { return tile_rows == size; });
    EXPECT_EQ(verified_rule(kernel, GemmMath::kF32, 5, 40), TileRule::kFixedTile) << size;
  }
}

TEST(PanelVerify, rejects_a_kernel_whose_bits_depend_on_the_place_in_the_tile) {
  const FlawedKernel last_place(5, 40, [](int rows, int place) { return place == rows - 1; });
  EXPECT_EQ(verified_rule(last_place, GemmMath::kF32, 5, 40), TileRule::kOwnLoop);
  const FlawedKernel second_half(5, 40, [](int, int place) { return place >= 8; });
  EXPECT_EQ(verified_rule(second_half, GemmMath::kF32, 5, 40), TileRule::kOwnLoop);
}

// ---- fp8 weights ------------------------------------------------------------------------------

// Blocks of a checkpoint: e4m3 times a scale that was amax / 448, or that rounded up to a power of
// two.
void expect_kept_bits(bool power_of_two) {
  const auto source = random_floats(128 * 128, 30);
  float amax = 0;
  for (float value : source) amax = std::max(amax, std::fabs(value));
  const float scale = power_of_two ? e4m3::block_scale(amax) : amax / 448;
  std::vector<float> w;
  std::vector<F8E4m3> q(source.size());
  for (float value : source) w.push_back(e4m3::decode(e4m3::encode(value / scale)) * scale);
  const float kept_scale =
      quantize_weight_block(view<const float>(w.data(), 128, 128), q.data(), 128);
  for (size_t i = 0; i < w.size(); ++i) {
    ASSERT_FLOAT_EQ(e4m3::decode(q[i]) * kept_scale, w[i]) << i;
  }
}

TEST(Fp8Blocks, keep_the_values_of_weights_that_were_quantised_before) {
  expect_kept_bits(true);
  expect_kept_bits(false);
}

TEST(Fp8Blocks, give_tails_scales_of_their_own) {
  std::vector<float> w(130 * 200, 1.0f);
  w[129 * 200 + 199] = 448.0f * 8;
  std::vector<F8E4m3> q(w.size());
  std::vector<float> scales(4);
  quantize_weights(view<const float>(w.data(), 130, 200), q.data(), 200, scales.data(), 2);
  EXPECT_EQ(scales, (std::vector<float>{0x1p-8f, 0x1p-8f, 0x1p-8f, 8.0f}));
}

// ---- Choosing a tile --------------------------------------------------------------------------

TEST(GemmConfig, covers_k_with_whole_blocks_of_scales) {
  for (int64_t n : {1, 64, 256, 1536, 7168, 129280}) {
    for (int64_t k : {1, 128, 200, 512, 2048, 7168, 18432}) {
      const GemmDesc desc{.n = n, .k = k};
      EXPECT_EQ(stretch_columns(n, k) % kFp8BlockColumns, 0);
      EXPECT_GE(num_stretches(desc) * stretch_columns(n, k), k);
      EXPECT_LT((num_stretches(desc) - 1) * stretch_columns(n, k), k) << "an empty stretch";
    }
  }
}

TEST(GemmConfig, splits_k_only_while_tiles_are_too_few_and_scratch_suffices) {
  GemmDesc desc{.m = 4, .n = 1536, .k = 7168, .num_sms = 132, .partial_floats = 1 << 24};
  EXPECT_TRUE(pick_config(desc).splits_k);
  desc.num_heads = 64;
  EXPECT_FALSE(pick_config(desc).splits_k);
  desc.num_heads = 1;
  desc.partial_floats = partial_floats_of(desc) - 1;
  EXPECT_FALSE(pick_config(desc).splits_k);
  desc.k = 256;
  EXPECT_FALSE(pick_config(desc).splits_k);
}

TEST(GemmConfig, takes_larger_tiles_for_more_rows) {
  GemmDesc desc{.m = 16, .n = 7168, .k = 2048, .num_sms = 132};
  EXPECT_EQ(pick_config(desc).tile, GemmTile::kRows16);
  desc.m = 17;
  EXPECT_EQ(pick_config(desc).tile, GemmTile::kRows64);
  desc.m = 4096;
  EXPECT_EQ(pick_config(desc).tile, GemmTile::kRows128);
  desc.num_groups = 256;  // 16 rows a group
  EXPECT_EQ(pick_config(desc).tile, GemmTile::kRows16);
}

TEST(GemmConfig, has_tiles_enough_for_any_groups) {
  for (const auto& offsets : {std::vector<int64_t>{0, 0, 0, 0, 0},
                              {0, 70, 70, 70, 70},
                              {0, 17, 33, 34, 70},
                              {0, 1, 1, 65, 66},
                              {0, 0, 16, 16, 48}}) {
    for (int block_m : {16, 64, 128}) {
      int64_t tiles = 0;
      for (size_t i = 1; i < offsets.size(); ++i) {
        tiles += ceil_quotient(offsets[i] - offsets[i - 1], block_m);
      }
      EXPECT_LE(tiles, num_row_tiles({.m = 70, .num_groups = 4}, block_m));
    }
  }
}

}  // namespace
}  // namespace dhs::test
