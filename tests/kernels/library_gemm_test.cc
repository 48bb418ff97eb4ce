// Products by cuBLASLt: what is given to it, what is not, and what comes back. A fake plays the
// library; on a GPU the last test meets the real one.
#include "kernels/gemm/library_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/fake_cublaslt.h"
#include "kernels/gemm/cuda_matrix.h"
#include "kernels/gemm/device_library.h"
#include "kernels/gemm_fixture.h"

namespace dhs::test {
namespace {

constexpr GemmPrecision kLibraryPrecisions[] = {GemmPrecision::kBf16, GemmPrecision::kFp8};

// Two blocks of rows, five blocks of columns: scales are neither square nor a multiple of four.
constexpr Shape kShape{132, 600};

// A matrix and the library that it was offered to.
class Offer {
 public:
  Offer(GemmPrecision precision, Shape shape, std::vector<FakeAlgorithm> algorithms,
        bool knows_block_scales = true)
      : w_(random_floats(shape.n * shape.k, 7)),
        library_(fake_cublaslt(), nullptr),
        matrix_(packed(precision, w_, shape)) {
    fake_library() = {.algorithms = std::move(algorithms),
                      .knows_block_scales = knows_block_scales};
    offer(*matrix_, stream());
  }

  void offer(PackedMatrix& matrix, Stream on) {
    static_cast<cuda::CudaMatrix&>(matrix).offer_to(library_, on);
    EXPECT_EQ(fake_library().num_alive, 0) << "descriptions are left";
  }
  bool is_taken() const { return packed_matrix_uses_library(*matrix_); }
  size_t algorithm() const {
    return place_of(static_cast<const cuda::CudaMatrix&>(*matrix_).library()->algorithm());
  }
  const PackedMatrix& matrix() const { return *matrix_; }
  const std::vector<float>& w() const { return w_; }

 private:
  const std::vector<float> w_;
  cuda::DeviceLibrary library_;
  PackedMatrixPtr matrix_;
};

int num_library_products(const std::function<void()>& work) {
  const int before = fake_library().num_products;
  work();
  return fake_library().num_products - before;
}

// ---- Which algorithm is taken -------------------------------------------------------------------

constexpr cuda::LibraryMatrix kAnyMatrix{.n = 512, .k = 256, .padded_k = 256};

// The place of the algorithm that is taken, nothing when none is. passing: those whose trial works.
std::optional<size_t> taken(std::vector<FakeAlgorithm> algorithms, std::vector<bool> passing,
                            bool can_describe = true) {
  fake_library() = {.algorithms = std::move(algorithms), .can_describe = can_describe};
  const auto gemm = cuda::LibraryGemm::make(
      fake_cublaslt(), nullptr, kAnyMatrix,
      [&](const cuda::LibraryGemm& tried) { return passing.at(place_of(tried.algorithm())); });
  EXPECT_EQ(fake_library().num_alive, 0);
  if (gemm == nullptr) return std::nullopt;
  return place_of(gemm->algorithm());
}

TEST(LibraryGemm, takes_the_first_algorithm_that_works_alone_and_passes_its_trial) {
  EXPECT_EQ(taken({{}, {}}, {true, true}), 0u);
  EXPECT_EQ(taken({{}, {}, {}}, {false, true, true}), 1u);
  EXPECT_EQ(taken({{.splits = 4}, {.rows_with_workspace = 3}, {}}, {true, true, true}), 2u);
  EXPECT_EQ(taken({{.state = CUBLAS_STATUS_NOT_SUPPORTED}, {}}, {true, true}), 1u);
}

TEST(LibraryGemm, takes_no_algorithm_that_refuses_a_row_count_it_may_be_called_with) {
  for (int64_t m : {int64_t{1}, int64_t{37}, int64_t{999}, cuda::kMaxLibraryRows}) {
    EXPECT_EQ(taken({{.refused_rows = m}, {}}, {true, true}), 1u) << m;
  }
  EXPECT_EQ(taken({{.refused_rows = cuda::kMaxLibraryRows + 1}, {}}, {true, true}), 0u);
}

TEST(LibraryGemm, leaves_the_matrix_to_our_kernel_when_no_algorithm_passes) {
  EXPECT_EQ(taken({}, {}), std::nullopt);
  EXPECT_EQ(taken({{}, {.splits = 2}}, {false, true}), std::nullopt);
  EXPECT_EQ(taken({{}}, {true}, false), std::nullopt);
}

TEST(LibraryGemm, is_not_there_when_a_function_is_missing) {
  static std::vector<std::string> asked;
  static std::string missing;
  auto load = [](const char*, const char* symbol) -> void* {
    asked.emplace_back(symbol);
    return symbol == missing ? nullptr : &missing;
  };
  cuda::CublasLtApi api;
  EXPECT_TRUE(cuda::load_cublaslt(load, api));
  const std::vector<std::string> all = asked;
  EXPECT_NE(std::find(all.begin(), all.end(), "cublasLtMatmulAlgoCheck"), all.end());
  for (size_t i = 0; i < all.size(); ++i) {
    missing = all[i];
    asked.clear();
    EXPECT_FALSE(cuda::load_cublaslt(load, api)) << missing;
    EXPECT_EQ(asked.size(), i + 1) << "a library that lacks " << missing << " was searched on";
  }
}

// ---- Products of a matrix that was given to it --------------------------------------------------

TEST(LibraryProduct, equals_the_reference_for_any_number_of_rows) {
  for (Shape shape : {kShape, Shape{4, 37}, Shape{128, 512}}) {
    for (GemmPrecision precision : kLibraryPrecisions) {
      const Offer offer(precision, shape, {{}});
      ASSERT_TRUE(offer.is_taken()) << describe(precision, shape);
      for (int64_t m : {1, 3, 4, 5, 70}) {
        const auto a = random_floats(m * shape.k, 8);
        std::vector<float> got;
        EXPECT_EQ(num_library_products([&] { got = product(offer.matrix(), a); }), 1);
        expect_reference(precision, offer.w(), shape, a, got);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(LibraryProduct, gives_a_row_the_same_bits_in_any_batch_whatever_the_scratch_holds) {
  const auto a = random_floats(150 * kShape.k, 9);
  for (GemmPrecision precision : kLibraryPrecisions) {
    const Offer offer(precision, kShape, {{}});
    ASSERT_TRUE(offer.is_taken());
    const auto all = product(offer.matrix(), a);
    const std::vector<int64_t> some = {149, 3, 77, 20, 0};
    EXPECT_EQ(bits_of(product(offer.matrix(), rows_of(a, kShape.k, some))),
              bits_of(rows_of(all, kShape.n, some)));
    Stream small = stream();
    small.scratch_bytes = precision == GemmPrecision::kFp8 ? 80 << 10 : 122 << 10;
    const int num_goes = num_library_products([&] {
      const auto in_goes =
          product(offer.matrix(), a, [&](const GemmParams& params) { launch_gemm(params, small); });
      EXPECT_EQ(bits_of(in_goes), bits_of(all));
    });
    EXPECT_GT(num_goes, 1);
  }
}

constexpr int64_t kRows = 8, kAStride = 603;

// `offset` 0: of an address at 16 bytes, 1: of one that is not. `want`: the products, dense.
void expect_spread_product(const PackedMatrix& matrix, const DeviceArray<float>& a,
                           const std::vector<float>& want, int64_t out_stride, int64_t offset) {
  const int64_t size = kRows * out_stride + 1;
  const DeviceArray<float> out(static_cast<size_t>(size), -7.0f);
  launch_gemm({&matrix,
               {a.data(), {kRows, kShape.k}, {kAStride, 1}},
               {out.data() + offset, {kRows, kShape.n}, {out_stride, 1}}},
              stream());
  std::vector<float> expected(out.size(), -7.0f);
  for (int64_t i = 0; i < kRows; ++i) {
    std::copy_n(&want[i * kShape.n], kShape.n, &expected[i * out_stride + offset]);
  }
  EXPECT_EQ(bits_of(out.download()), bits_of(expected)) << out_stride << ", " << offset;
}

TEST(LibraryProduct, respects_strides_and_addresses_and_writes_nothing_else) {
  constexpr int64_t kOutStride = 140;
  const auto dense_a = random_floats(kRows * kShape.k, 10);
  std::vector<float> spread_a(static_cast<size_t>(kRows * kAStride), NAN);
  for (int64_t i = 0; i < kRows; ++i) {
    std::copy_n(&dense_a[i * kShape.k], kShape.k, &spread_a[i * kAStride]);
  }
  const DeviceArray<float> a(spread_a);
  for (GemmPrecision precision : kLibraryPrecisions) {
    const Offer offer(precision, kShape, {{}});
    const auto want = product(offer.matrix(), dense_a);
    for (int64_t out_stride : {kOutStride, kShape.n}) {
      expect_spread_product(offer.matrix(), a, want, out_stride, 0);
      expect_spread_product(offer.matrix(), a, want, out_stride, 1);
    }
  }
}

TEST(LibraryProduct, is_not_disturbed_by_neighbour_rows_that_are_not_finite) {
  const auto a = random_floats(9 * kShape.k, 11);
  auto dirty_a = a;
  std::fill_n(dirty_a.begin() + 3 * kShape.k, kShape.k, INFINITY);
  std::fill_n(dirty_a.begin() + 8 * kShape.k, kShape.k, NAN);
  for (GemmPrecision precision : kLibraryPrecisions) {
    const Offer offer(precision, kShape, {{}});
    const auto clean = product(offer.matrix(), a), dirty = product(offer.matrix(), dirty_a);
    const std::vector<int64_t> others = {0, 1, 2, 4, 5, 6, 7};
    EXPECT_EQ(bits_of(rows_of(clean, kShape.n, others)), bits_of(rows_of(dirty, kShape.n, others)));
    for (float value : rows_of(dirty, kShape.n, {3, 8})) EXPECT_FALSE(std::isfinite(value));
  }
}

TEST(LibraryProduct, accepts_zero_rows) {
  const Offer offer(GemmPrecision::kFp8, kShape, {{}});
  EXPECT_TRUE(product(offer.matrix(), {}).empty());
}

TEST(LibraryProductDeathTest, a_refusal_after_acceptance_stops_the_process) {
  struct Case {
    GemmPrecision precision;
    int64_t m;
  };
  for (const auto& [precision, m] :
       {Case{GemmPrecision::kBf16, 5}, Case{GemmPrecision::kFp8, 24}}) {
    const Offer offer(precision, kShape, {{.rows_refused_late = m}});
    ASSERT_TRUE(offer.is_taken());
    const auto a = random_floats(m * kShape.k, 12);
    EXPECT_DEATH(product(offer.matrix(), a), "cuBLASLt refused .* rows of a matrix of 132 x 600");
  }
}

// ---- What stays with our own kernels ------------------------------------------------------------

void expect_own_bits(const Offer& offer, GemmPrecision precision, Shape shape) {
  EXPECT_FALSE(offer.is_taken());
  const auto a = random_floats(5 * shape.k, 13);
  const auto own = packed(precision, offer.w(), shape);
  EXPECT_EQ(bits_of(product(offer.matrix(), a)), bits_of(product(*own, a)));
}

TEST(LibraryTrial, refuses_an_algorithm_whose_bits_depend_on_the_number_of_rows) {
  for (GemmPrecision precision : kLibraryPrecisions) {
    for (int64_t from : {8, 65, 129, 300, 2048}) {
      expect_own_bits({precision, kShape, {{.reversed_from_rows = from}}}, precision, kShape);
    }
    const Offer next_one(precision, kShape, {{.reversed_from_rows = 65}, {}});
    ASSERT_TRUE(next_one.is_taken());
    EXPECT_EQ(next_one.algorithm(), 1u);
  }
}

TEST(LibraryTrial, refuses_an_algorithm_that_takes_one_wrong_scale) {
  constexpr GemmPrecision kFp8 = GemmPrecision::kFp8;
  expect_own_bits({kFp8, kShape, {{.misscaled_row_block = 1}}}, kFp8, kShape);
}

bool takes(cuda::DeviceLibrary& library, PackedMatrix& matrix) {
  static_cast<cuda::CudaMatrix&>(matrix).offer_to(library, stream());
  return packed_matrix_uses_library(matrix);
}

// Weights whose blocks of rows are scaled as the first is show nothing; the next matrix does.
TEST(LibraryTrial, tries_each_matrix_of_a_shape_for_its_own_scales) {
  auto pack = [](float size_of_last_rows) {
    auto w = random_floats(kShape.n * kShape.k, 14);
    for (float& value : w) value = std::copysign(0.5f, value);
    for (size_t i = size_t{128} * kShape.k; i < w.size(); ++i) w[i] *= size_of_last_rows;
    return packed(GemmPrecision::kFp8, w, kShape);
  };
  fake_library() = {.algorithms = {{.misscaled_row_block = 1}}};
  cuda::DeviceLibrary library(fake_cublaslt(), nullptr);
  const auto alike = pack(1), different = pack(8), alike_again = pack(1);
  EXPECT_TRUE(takes(library, *alike));
  EXPECT_FALSE(takes(library, *different));
  EXPECT_TRUE(takes(library, *alike_again));
}

TEST(LibraryTrial, refuses_an_algorithm_that_refuses_while_it_is_tried) {
  for (GemmPrecision precision : kLibraryPrecisions) {
    expect_own_bits({precision, kShape, {{.rows_refused_late = 8}}}, precision, kShape);
  }
}

TEST(LibraryTrial, refuses_matrices_that_show_nothing) {
  fake_library() = {.algorithms = {{}}};
  for (float value : {0.0f, NAN}) {
    cuda::DeviceLibrary library(fake_cublaslt(), nullptr);
    const std::vector<float> w(static_cast<size_t>(kShape.n * kShape.k), value);
    EXPECT_FALSE(takes(library, *packed(GemmPrecision::kBf16, w, kShape))) << value;
  }
}

TEST(LibraryTrial, leaves_fp8_to_our_kernel_where_the_library_knows_no_block_scales) {
  constexpr GemmPrecision kFp8 = GemmPrecision::kFp8;
  expect_own_bits({kFp8, kShape, {{}}, false}, kFp8, kShape);
  EXPECT_TRUE(Offer(GemmPrecision::kBf16, kShape, {{}}, false).is_taken());
}

TEST(LibraryTrial, asks_about_counts_of_fp8_rows_by_four) {
  EXPECT_TRUE(Offer(GemmPrecision::kFp8, kShape, {{.refused_rows = 37}}).is_taken());
  EXPECT_FALSE(Offer(GemmPrecision::kFp8, kShape, {{.refused_rows = 36}}).is_taken());
}

TEST(LibraryTrial, is_not_held_for_matrices_that_the_library_is_not_for) {
  Offer offer(GemmPrecision::kF32, kShape, {{}});
  EXPECT_FALSE(offer.is_taken());
  EXPECT_FALSE(Offer(GemmPrecision::kBf16, {130, 64}, {{}}).is_taken());
  fake_library().num_products = 0;
  const auto two = make_packed_matrix({GemmPrecision::kBf16, 2, 64, 64}, stream());
  const auto w = random_floats(64 * 64, 15);
  for (int64_t i : {0, 1}) {
    ASSERT_TRUE(pack_into(*two, i, view<const float>(w.data(), 64, 64), stream()));
  }
  offer.offer(*two, stream());
  EXPECT_FALSE(packed_matrix_uses_library(*two));
  const auto large = packed(GemmPrecision::kBf16, w, {64, 64});
  Stream small = stream();
  small.scratch_bytes = 16 << 10;  // fewer than 64 rows and their results
  offer.offer(*large, small);
  EXPECT_FALSE(packed_matrix_uses_library(*large));
  EXPECT_EQ(fake_library().num_products, 0);
}

// ---- The real library, where there is one -------------------------------------------------------

TEST(RealLibrary, keeps_what_gemm_promises_or_is_not_used) {
  constexpr Shape kLarge{256, 640};
  const auto w = random_floats(kLarge.n * kLarge.k, 16);
  const auto a = random_floats(70 * kLarge.k, 17);
  for (GemmPrecision precision : kLibraryPrecisions) {
    const auto matrix = make_packed_matrix(
        {.precision = precision, .n = kLarge.n, .k = kLarge.k, .prefers_library = true}, stream());
    ASSERT_TRUE(pack_into(*matrix, 0, view<const float>(w.data(), kLarge.n, kLarge.k), stream()));
    const bool is_taken = packed_matrix_uses_library(*matrix);
    std::printf("%s: %s\n", describe(precision, kLarge).c_str(),
                is_taken ? "cuBLASLt" : "our own kernel");
    const auto all = product(*matrix, a);
    const auto own = product(*packed(precision, w, kLarge), a);
    if (!is_taken) {
      EXPECT_EQ(bits_of(all), bits_of(own));
    }
    for (size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(all[i], own[i], 0.1) << i;
    for (int64_t m : {1, 2, 6, 63}) {
      const std::vector<float> some(a.begin(), a.begin() + m * kLarge.k);
      const std::vector<float> want(all.begin(), all.begin() + m * kLarge.n);
      EXPECT_EQ(bits_of(product(*matrix, some)), bits_of(want)) << m;
    }
  }
}

}  // namespace
}  // namespace dhs::test
