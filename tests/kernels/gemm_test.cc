#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/gemm/gemm_tables.h"
#include "kernels/gemm/panel_loop.h"
#include "kernels/gemm/panel_verify.h"

namespace dhs {
namespace {

struct Shape {
  int64_t n;
  int64_t k;
};
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

std::string describe(const Path& path, Shape shape) {
  return "math " + std::to_string(static_cast<int>(path.math)) + ", rule " +
         (path.rule ? std::to_string(static_cast<int>(*path.rule)) : "verified") + ", n " +
         std::to_string(shape.n) + ", k " + std::to_string(shape.k);
}

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// The product of rows [0, m) of `a`, which has `k` columns.
std::vector<float> product(const PackedMatrix& matrix, const float* a, int64_t m, Shape shape) {
  std::vector<float> out(static_cast<size_t>(m * shape.n), -1.0f);
  launch_gemm({&matrix, view(a, m, shape.k), view(out.data(), m, shape.n)}, Stream{});
  return out;
}

bool same_bits(const float* x, const float* y, int64_t count) {
  return std::memcmp(x, y, static_cast<size_t>(count) * sizeof(float)) == 0;
}

class ThreadCount {
 public:
  explicit ThreadCount(int threads) { set_num_kernel_threads(threads); }
  ~ThreadCount() { set_num_kernel_threads(0); }
};

void expect_close(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << what << ", element " << i;
  }
}

TEST(Gemm, equals_the_reference_on_every_path) {
  for (Shape shape : kShapes) {
    const auto w = random_floats(shape.n * shape.k, 1);
    const auto a = random_floats(70 * shape.k, 2);
    const auto w_view = view(w.data(), shape.n, shape.k);
    for (const Path& path : all_paths()) {
      const auto matrix = pack_matrix_as(path.math, path.rule, w_view);
      ASSERT_NE(matrix, nullptr);
      for (int64_t m : {1, 2, 3, 5, 8, 17, 64, 70}) {
        std::vector<float> want(static_cast<size_t>(m * shape.n));
        gemm_ref(path.precision, w_view, view(a.data(), m, shape.k), view(want.data(), m, shape.n));
        const auto got = product(*matrix, a.data(), m, shape);
        // f32 accumulation of k terms of size about 1.
        const double tolerance = 2e-6 * std::sqrt(static_cast<double>(shape.k)) + 1e-6;
        expect_close(got, want, tolerance, describe(path, shape) + ", m " + std::to_string(m));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Gemm, gives_a_row_the_same_bits_in_any_batch) {
  constexpr int64_t kRows = 150;
  for (Shape shape : kShapes) {
    const auto w = random_floats(shape.n * shape.k, 3);
    const auto a = random_floats(kRows * shape.k, 4);
    for (const Path& path : all_paths()) {
      const auto matrix = pack_matrix_as(path.math, path.rule, view(w.data(), shape.n, shape.k));
      ASSERT_NE(matrix, nullptr);
      const auto all = product(*matrix, a.data(), kRows, shape);
      for (int64_t m : {1, 2, 3, 4, 7, 8, 12, 13, 16, 23, 33, 48, 63, 64, 65, 100}) {
        const int64_t first = (m * 37) % (kRows - m + 1);
        const auto some = product(*matrix, a.data() + first * shape.k, m, shape);
        ASSERT_TRUE(same_bits(some.data(), all.data() + first * shape.n, m * shape.n))
            << describe(path, shape) << ", m " << m;
      }
    }
  }
}

TEST(Gemm, gives_the_same_bits_with_one_thread_and_with_two) {
  constexpr Shape kShape{1024, 1030};  // large enough that threads are used
  const auto w = random_floats(kShape.n * kShape.k, 5);
  const auto a = random_floats(64 * kShape.k, 6);
  for (const Path& path : all_paths()) {
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2}) {
      ThreadCount count(threads);
      const auto matrix = pack_matrix_as(path.math, path.rule, view(w.data(), kShape.n, kShape.k));
      results.push_back(product(*matrix, a.data(), 64, kShape));
    }
    EXPECT_EQ(results[0], results[1]) << describe(path, kShape);
  }
}

TEST(Gemm, is_not_disturbed_by_neighbour_rows_that_are_not_finite) {
  constexpr Shape kShape{130, 96};
  const auto w = random_floats(kShape.n * kShape.k, 7);
  auto a = random_floats(9 * kShape.k, 8);
  for (const Path& path : all_paths()) {
    const auto matrix = pack_matrix_as(path.math, path.rule, view(w.data(), kShape.n, kShape.k));
    const auto clean = product(*matrix, a.data(), 9, kShape);
    auto dirty_a = a;
    for (int64_t i = 0; i < kShape.k; ++i) {
      dirty_a[static_cast<size_t>(3 * kShape.k + i)] = INFINITY;
      dirty_a[static_cast<size_t>(8 * kShape.k + i)] = NAN;
    }
    const auto dirty = product(*matrix, dirty_a.data(), 9, kShape);
    for (int64_t row : {0, 1, 2, 4, 5, 6, 7}) {
      EXPECT_TRUE(same_bits(clean.data() + row * kShape.n, dirty.data() + row * kShape.n, kShape.n))
          << describe(path, kShape) << ", row " << row;
    }
  }
}

TEST(Gemm, respects_row_strides_and_writes_nothing_else) {
  constexpr Shape kShape{70, 40};
  constexpr int64_t kRows = 5, kAStride = 48, kWStride = 43, kOutStride = 77;
  const auto w = random_floats(kShape.n * kWStride, 9);
  const auto a = random_floats(kRows * kAStride, 10);
  std::vector<float> dense_w, dense_a;
  for (int64_t i = 0; i < kShape.n; ++i) {
    dense_w.insert(dense_w.end(), &w[i * kWStride], &w[i * kWStride] + kShape.k);
  }
  for (int64_t i = 0; i < kRows; ++i) {
    dense_a.insert(dense_a.end(), &a[i * kAStride], &a[i * kAStride] + kShape.k);
  }
  for (GemmPrecision precision : {GemmPrecision::kF32, GemmPrecision::kBf16}) {
    const auto strided = pack_matrix(precision, {w.data(), {kShape.n, kShape.k}, {kWStride, 1}});
    const auto dense =
        pack_matrix(precision, view<const float>(dense_w.data(), kShape.n, kShape.k));
    const auto want = product(*dense, dense_a.data(), kRows, kShape);
    std::vector<float> out(kRows * kOutStride, -7.0f);
    launch_gemm({strided.get(),
                 {a.data(), {kRows, kShape.k}, {kAStride, 1}},
                 {out.data(), {kRows, kShape.n}, {kOutStride, 1}}},
                Stream{});
    for (int64_t row = 0; row < kRows; ++row) {
      EXPECT_TRUE(same_bits(&out[row * kOutStride], &want[row * kShape.n], kShape.n));
      for (int64_t i = kShape.n; i < kOutStride; ++i) EXPECT_EQ(out[row * kOutStride + i], -7.0f);
    }
  }
}

TEST(Gemm, accepts_zero_rows) {
  const auto w = random_floats(64 * 64, 11);
  const auto matrix = pack_matrix(GemmPrecision::kBf16, view(w.data(), 64, 64));
  EXPECT_TRUE(product(*matrix, w.data(), 0, {64, 64}).empty());
}

TEST(Gemm, stores_bf16_weights_in_two_bytes_an_element) {
  const auto w = random_floats(512 * 256, 12);
  for (GemmMath math : supported_gemm_math(GemmPrecision::kBf16)) {
    const auto matrix = pack_matrix_as(math, std::nullopt, view(w.data(), 512, 256));
    EXPECT_EQ(packed_matrix_bytes(*matrix), 512 * 256 * 2);
  }
  const auto wide = pack_matrix(GemmPrecision::kF32, view(w.data(), 512, 256));
  EXPECT_EQ(packed_matrix_bytes(*wide), 512 * 256 * 4);
}

TEST(Gemm, says_when_the_fixed_tile_is_in_use) {
  const auto w = random_floats(64 * 64, 13);
  const auto any = pack_matrix_as(GemmMath::kF32, TileRule::kAnyTile, view(w.data(), 64, 64));
  const auto fixed = pack_matrix_as(GemmMath::kF32, TileRule::kFixedTile, view(w.data(), 64, 64));
  EXPECT_TRUE(packed_matrix_uses_any_tile(*any));
  EXPECT_FALSE(packed_matrix_uses_any_tile(*fixed));
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

std::vector<PackedMatrixPtr> pack_heads(GemmPrecision precision, int64_t num_heads, Shape shape) {
  std::vector<PackedMatrixPtr> weights;
  weights.reserve(static_cast<size_t>(num_heads));
  for (int64_t head = 0; head < num_heads; ++head) {
    const auto w = random_floats(shape.n * shape.k, 20 + static_cast<uint32_t>(head));
    weights.push_back(pack_matrix(precision, view<const float>(w.data(), shape.n, shape.k)));
  }
  return weights;
}

// `a` holds [rows, heads, shape.k].
void expect_bits_of_own_gemms(const std::vector<PackedMatrixPtr>& weights,
                              const std::vector<float>& a, Shape shape, const std::string& what) {
  const auto num_heads = static_cast<int64_t>(weights.size());
  const auto num_rows = static_cast<int64_t>(a.size()) / (num_heads * shape.k);
  std::vector<float> out(static_cast<size_t>(num_rows * num_heads * shape.n));
  launch_head_gemm({weights.data(), view(a.data(), num_rows, num_heads, shape.k),
                    view(out.data(), num_rows, num_heads, shape.n)},
                   Stream{});
  for (int64_t head = 0; head < num_heads; ++head) {
    std::vector<float> want(static_cast<size_t>(num_rows * shape.n));
    launch_gemm({weights[static_cast<size_t>(head)].get(),
                 {a.data() + head * shape.k, {num_rows, shape.k}, {num_heads * shape.k, 1}},
                 view(want.data(), num_rows, shape.n)},
                Stream{});
    for (int64_t row = 0; row < num_rows; ++row) {
      ASSERT_TRUE(same_bits(&out[static_cast<size_t>((row * num_heads + head) * shape.n)],
                            &want[static_cast<size_t>(row * shape.n)], shape.n))
          << "head " << head << ", row " << row << ", " << what;
    }
  }
}

TEST(HeadGemm, gives_each_head_the_bits_of_its_own_gemm) {
  constexpr int64_t kHeads = 7, kRows = 67;
  for (Shape shape : {Shape{128, 64}, Shape{512, 192}, Shape{70, 33}}) {
    for (GemmPrecision precision : {GemmPrecision::kF32, GemmPrecision::kBf16}) {
      const auto weights = pack_heads(precision, kHeads, shape);
      const auto a = random_floats(kRows * kHeads * shape.k, 14);
      for (int threads : {1, 2}) {
        ThreadCount count(threads);
        expect_bits_of_own_gemms(weights, a, shape, "threads " + std::to_string(threads));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(HeadGemm, accepts_zero_rows_and_zero_heads) {
  const auto w = random_floats(64 * 64, 15);
  std::vector<PackedMatrixPtr> weights;
  weights.push_back(pack_matrix(GemmPrecision::kF32, view(w.data(), 64, 64)));
  float out = -1.0f;
  launch_head_gemm({weights.data(), view(w.data(), 0, 1, 64), view(&out, 0, 1, 64)}, Stream{});
  launch_head_gemm({weights.data(), view(w.data(), 4, 0, 64), view(&out, 4, 0, 64)}, Stream{});
  EXPECT_EQ(out, -1.0f);
}

}  // namespace
}  // namespace dhs
