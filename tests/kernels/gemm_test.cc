#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm_fixture.h"
#if DHS_TEST_CUDA
#include "kernels/gemm/gemm_cuda.h"
#endif

namespace dhs::test {
namespace {

// Tails on both axes of every tile, several stretches of k, and single elements.
constexpr Shape kShapes[] = {{1, 1}, {64, 64}, {100, 37}, {129, 65}, {40, 700}};

TEST(Gemm, equals_the_reference_at_every_precision) {
  for (Shape shape : kShapes) {
    const auto w = random_floats(shape.n * shape.k, 1);
    for (GemmPrecision precision : kPrecisions) {
      const auto matrix = packed(precision, w, shape);
      ASSERT_NE(matrix, nullptr);
      for (int64_t m : {1, 5, 17, 70}) {
        const auto a = random_floats(m * shape.k, 2);
        expect_reference(precision, w, shape, a, product(*matrix, a));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Gemm, gives_a_row_the_same_bits_in_any_batch_and_at_any_place) {
  constexpr int64_t kRows = 70;
  std::mt19937 generator(3);
  for (Shape shape : {Shape{70, 520}, Shape{20, 37}}) {
    const auto w = random_floats(shape.n * shape.k, 3);
    const auto a = random_floats(kRows * shape.k, 4);
    for (GemmPrecision precision : kPrecisions) {
      const auto matrix = packed(precision, w, shape);
      const auto all = product(*matrix, a);
      std::vector<int64_t> rows(kRows);
      std::iota(rows.begin(), rows.end(), 0);
      for (int64_t m = 1; m <= kRows; m += kOnCuda ? 1 + m : 1) {
        std::shuffle(rows.begin(), rows.end(), generator);
        const std::vector<int64_t> some(rows.begin(), rows.begin() + m);
        ASSERT_EQ(bits_of(product(*matrix, rows_of(a, shape.k, some))),
                  bits_of(rows_of(all, shape.n, some)))
            << describe(precision, shape) << ", m " << m;
      }
    }
  }
}

TEST(Gemm, is_not_disturbed_by_neighbour_rows_that_are_not_finite) {
  constexpr Shape kShape{130, 96};
  const auto w = random_floats(kShape.n * kShape.k, 7);
  const auto a = random_floats(9 * kShape.k, 8);
  auto dirty_a = a;
  std::fill_n(dirty_a.begin() + 3 * kShape.k, kShape.k, INFINITY);
  std::fill_n(dirty_a.begin() + 8 * kShape.k, kShape.k, NAN);
  for (GemmPrecision precision : kPrecisions) {
    const auto matrix = packed(precision, w, kShape);
    const auto clean = product(*matrix, a), dirty = product(*matrix, dirty_a);
    const std::vector<int64_t> others = {0, 1, 2, 4, 5, 6, 7};
    EXPECT_EQ(bits_of(rows_of(clean, kShape.n, others)), bits_of(rows_of(dirty, kShape.n, others)));
    for (float value : rows_of(dirty, kShape.n, {3, 8})) EXPECT_FALSE(std::isfinite(value));
  }
}

TEST(Gemm, respects_row_strides_and_writes_nothing_else) {
  constexpr Shape kShape{70, 40};
  constexpr int64_t kRows = 5, kWStride = 43, kOutStride = 77;
  const auto dense_w = random_floats(kShape.n * kShape.k, 9);
  const auto dense_a = random_floats(kRows * kShape.k, 10);
  auto strided = [&](const std::vector<float>& dense, int64_t rows, int64_t stride) {
    std::vector<float> spread(static_cast<size_t>(rows * stride), NAN);
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(&dense[i * kShape.k], kShape.k, &spread[i * stride]);
    }
    return spread;
  };
  const auto w = strided(dense_w, kShape.n, kWStride);
  for (int64_t a_stride : {48, 41}) {  // aligned rows and others
    const DeviceArray<float> a(strided(dense_a, kRows, a_stride));
    for (GemmPrecision precision : kPrecisions) {
      const auto matrix =
          pack_matrix(precision, {w.data(), {kShape.n, kShape.k}, {kWStride, 1}}, stream());
      const auto want = product(*packed(precision, dense_w, kShape), dense_a);
      const DeviceArray<float> device_out(kRows * kOutStride, -7.0f);
      launch_on_test_stream({matrix.get(),
                             {a.data(), {kRows, kShape.k}, {a_stride, 1}},
                             {device_out.data(), {kRows, kShape.n}, {kOutStride, 1}}});
      const auto out = device_out.download();
      for (int64_t i = 0; i < kRows * kOutStride; ++i) {
        const int64_t row = i / kOutStride, column = i % kOutStride;
        ASSERT_EQ(out[i], column < kShape.n ? want[row * kShape.n + column] : -7.0f) << i;
      }
    }
  }
}

TEST(Gemm, accepts_zero_rows) {
  const auto w = random_floats(64 * 64, 11);
  EXPECT_TRUE(product(*packed(GemmPrecision::kBf16, w, {64, 64}), {}).empty());
}

TEST(Gemm, stores_weights_in_the_bytes_of_their_precision) {
  const auto w = random_floats(512 * 256, 12);
  EXPECT_EQ(packed_matrix_bytes(*packed(GemmPrecision::kF32, w, {512, 256})), 512 * 256 * 4);
  EXPECT_EQ(packed_matrix_bytes(*packed(GemmPrecision::kBf16, w, {512, 256})), 512 * 256 * 2);
  const int64_t scale_bytes = kOnCuda ? 4 * 16 : 4 * 8;  // CUDA pads rows of scales to 16 bytes
  EXPECT_EQ(packed_matrix_bytes(*packed(GemmPrecision::kFp8, w, {512, 256})),
            512 * 256 + scale_bytes);
}

// ---- Several matrices in one ------------------------------------------------------------------

struct Many {
  std::vector<PackedMatrixPtr> alone;
  PackedMatrixPtr together;  // the same, packed from the last to the first
};

Many pack_many(GemmPrecision precision, int64_t count, Shape shape) {
  Many many;
  many.together = make_packed_matrix({precision, count, shape.n, shape.k}, stream());
  for (int64_t index = count - 1; index >= 0; --index) {
    const auto w = random_floats(shape.n * shape.k, 20 + static_cast<uint32_t>(index));
    many.alone.insert(many.alone.begin(), packed(precision, w, shape));
    const auto w_view = view(w.data(), shape.n, shape.k);
    EXPECT_TRUE(pack_into(*many.together, index, w_view, stream()));
  }
  return many;
}

// `a` holds [rows, heads, k] in rows that are `gap` longer; heads start at `first_head`.
void expect_bits_of_own_gemms(const Many& many, int64_t first_head, int64_t num_heads, int64_t gap,
                              int64_t num_rows) {
  const auto [n, k] = std::pair(packed_shape(*many.together).n, packed_shape(*many.together).k);
  const int64_t a_stride = num_heads * k + gap, out_stride = num_heads * n + gap;
  const auto a = random_floats(num_rows * a_stride, 14);
  const DeviceArray<float> device_a(a);
  const DeviceArray<float> device_out(static_cast<size_t>(num_rows * out_stride), -7.0f);
  launch_head_gemm({many.together.get(),
                    first_head,
                    {device_a.data(), {num_rows, num_heads, k}, {a_stride, k, 1}},
                    {device_out.data(), {num_rows, num_heads, n}, {out_stride, n, 1}}},
                   stream());
  const auto out = device_out.download();
  std::vector<float> want(out.size(), -7.0f);
  for (int64_t head = 0; head < num_heads; ++head) {
    std::vector<float> rows;
    for (int64_t row = 0; row < num_rows; ++row) {
      const auto begin = a.begin() + row * a_stride + head * k;
      rows.insert(rows.end(), begin, begin + k);
    }
    const auto own = product(*many.alone[static_cast<size_t>(first_head + head)], rows);
    for (int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(&own[row * n], n, &want[row * out_stride + head * n]);
    }
  }
  EXPECT_EQ(bits_of(out), bits_of(want));
}

TEST(HeadGemm, gives_each_head_the_bits_of_its_own_gemm) {
  for (Shape shape : {Shape{70, 33}, Shape{24, 520}}) {
    for (GemmPrecision precision : kPrecisions) {
      SCOPED_TRACE(describe(precision, shape));
      const Many many = pack_many(precision, 4, shape);
      expect_bits_of_own_gemms(many, 0, 4, 0, 19);
      expect_bits_of_own_gemms(many, 2, 2, 8, 3);
    }
  }
}

TEST(HeadGemm, accepts_zero_rows_and_zero_heads) {
  const Many many = pack_many(GemmPrecision::kF32, 1, {64, 64});
  expect_bits_of_own_gemms(many, 0, 1, 0, 0);
  expect_bits_of_own_gemms(many, 1, 0, 3, 4);
}

using LaunchGrouped = std::function<void(const GroupedGemmParams&)>;

void expect_bits_of_groups(const Many& many, const std::vector<int32_t>& offsets, int64_t num_rows,
                           const LaunchGrouped& launch) {
  const auto [n, k] = std::pair(packed_shape(*many.together).n, packed_shape(*many.together).k);
  const auto a = random_floats(num_rows * k, 15);
  const DeviceArray<float> device_a(a);
  const DeviceArray<int32_t> device_offsets(offsets);
  const DeviceArray<float> out(static_cast<size_t>(num_rows * n), -7.0f);
  launch({many.together.get(),
          view<const int32_t>(device_offsets.data(), static_cast<int64_t>(offsets.size())),
          view<const float>(device_a.data(), num_rows, k), view(out.data(), num_rows, n)});
  std::vector<float> want;
  for (size_t group = 0; group + 1 < offsets.size(); ++group) {
    const auto own = product(*many.alone[group],
                             {a.begin() + offsets[group] * k, a.begin() + offsets[group + 1] * k});
    want.insert(want.end(), own.begin(), own.end());
  }
  want.resize(static_cast<size_t>(num_rows * n), -7.0f);
  EXPECT_EQ(bits_of(out.download()), bits_of(want)) << testing::PrintToString(offsets);
}

const std::vector<int32_t> kOffsets[] = {{0, 0, 0, 0, 0},     {0, 20, 20, 20, 20}, {0, 0, 0, 0, 20},
                                         {0, 17, 33, 34, 70}, {0, 0, 16, 16, 18},  {0, 2, 2, 2, 2}};

TEST(GroupedGemm, gives_each_run_of_rows_the_bits_of_its_own_gemm_and_touches_no_other) {
  for (Shape shape : {Shape{70, 33}, Shape{24, 520}}) {
    for (GemmPrecision precision : kPrecisions) {
      SCOPED_TRACE(describe(precision, shape));
      const Many many = pack_many(precision, 4, shape);
      for (const auto& offsets : kOffsets) {
        expect_bits_of_groups(
            many, offsets, offsets.back() + 2,
            [](const GroupedGemmParams& params) { launch_grouped_gemm(params, stream()); });
      }
    }
  }
}

TEST(GroupedGemm, finds_its_rows_among_more_groups_than_a_warp_has_lanes) {
  const Many many = pack_many(GemmPrecision::kF32, 67, {8, 32});
  std::vector<int32_t> offsets = {0};
  for (int group = 0; group < 67; ++group) offsets.push_back(offsets.back() + group * 7 % 4);
  expect_bits_of_groups(many, offsets, offsets.back() + 3, [](const GroupedGemmParams& params) {
    launch_grouped_gemm(params, stream());
  });
}

TEST(GroupedGemm, accepts_zero_rows) {
  const Many many = pack_many(GemmPrecision::kBf16, 2, {64, 64});
  expect_bits_of_groups(many, {0, 0, 0}, 0, [](const GroupedGemmParams& params) {
    launch_grouped_gemm(params, stream());
  });
}

#if DHS_TEST_CUDA

std::vector<GemmConfig> all_configs() {
  std::vector<GemmConfig> configs;
  for (GemmTile tile : kGemmTiles) {
    for (bool splits_k : {false, true}) configs.push_back({tile, splits_k});
  }
  return configs;
}

void expect_same_bits_with_every_config(GemmPrecision precision, Shape shape,
                                        const std::vector<int64_t>& row_counts) {
  const auto w = random_floats(shape.n * shape.k, 40);
  const auto matrix = packed(precision, w, shape);
  for (int64_t m : row_counts) {
    const auto a = random_floats(m * shape.k, 41);
    const auto want = product(*matrix, a);
    expect_reference(precision, w, shape, a, want);
    for (GemmConfig config : all_configs()) {
      const auto got = product(*matrix, a, [&](const GemmParams& params) {
        cuda::launch_gemm_as(params, config, stream());
      });
      ASSERT_EQ(bits_of(got), bits_of(want))
          << describe(precision, shape) << ", m " << m << ", tile " << static_cast<int>(config.tile)
          << ", split " << config.splits_k;
    }
  }
}

TEST(CudaGemm, gives_the_same_bits_with_every_tile_and_split) {
  for (GemmPrecision precision : kPrecisions) {
    expect_same_bits_with_every_config(precision, {66, 900}, {17});  // three stretches of k
    expect_same_bits_with_every_config(precision, {140, 50}, {3, 66});
  }
}

TEST(CudaGemm, gives_groups_the_same_bits_with_every_tile_and_split) {
  for (GemmPrecision precision : kPrecisions) {
    const Many many = pack_many(precision, 4, {24, 520});
    for (GemmConfig config : all_configs()) {
      SCOPED_TRACE(static_cast<int>(config.tile));
      expect_bits_of_groups(many, kOffsets[3], 70, [&](const GroupedGemmParams& params) {
        cuda::launch_grouped_gemm_as(params, config, stream());
      });
    }
  }
}

TEST(CudaGemm, computes_fp8_rows_in_several_goes_when_scratch_is_small) {
  constexpr Shape kShape{40, 520};
  const Many many = pack_many(GemmPrecision::kFp8, 4, kShape);
  Stream small = stream();
  small.scratch_bytes = 32 << 10;  // 24 rows at a time
  const auto a = random_floats(70 * kShape.k, 42);
  EXPECT_EQ(bits_of(product(*many.alone[0], a)),
            bits_of(product(*many.alone[0], a,
                            [&](const GemmParams& params) { launch_gemm(params, small); })));
  expect_bits_of_groups(many, kOffsets[4], 70, [&](const GroupedGemmParams& params) {
    launch_grouped_gemm(params, small);
  });
}

#endif  // DHS_TEST_CUDA

}  // namespace
}  // namespace dhs::test
