// What the tests of gemm share: packing, products and their truth, on the stream under test.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/test_memory.h"

namespace dhs::test {

inline constexpr GemmPrecision kPrecisions[] = {GemmPrecision::kF32, GemmPrecision::kBf16,
                                                GemmPrecision::kFp8};

struct Shape {
  int64_t n;
  int64_t k;
};

inline std::string describe(GemmPrecision precision, Shape shape) {
  return "precision " + std::to_string(static_cast<int>(precision)) + ", n " +
         std::to_string(shape.n) + ", k " + std::to_string(shape.k);
}

inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

inline PackedMatrixPtr packed(GemmPrecision precision, const std::vector<float>& w, Shape shape) {
  return pack_matrix(precision, view(w.data(), shape.n, shape.k), stream());
}

using Launch = std::function<void(const GemmParams&)>;

inline void launch_on_test_stream(const GemmParams& params) { launch_gemm(params, stream()); }

// The product of dense rows.
inline std::vector<float> product(const PackedMatrix& matrix, const std::vector<float>& a,
                                  const Launch& launch = launch_on_test_stream) {
  const auto [n, k] = std::pair(packed_shape(matrix).n, packed_shape(matrix).k);
  const int64_t m = static_cast<int64_t>(a.size()) / k;
  const DeviceArray<float> device_a(a);
  const DeviceArray<float> out(static_cast<size_t>(m * n), -1.0f);
  launch({&matrix, view<const float>(device_a.data(), m, k), view(out.data(), m, n)});
  return out.download();
}

inline std::vector<float> rows_of(const std::vector<float>& all, int64_t width,
                                  const std::vector<int64_t>& rows) {
  std::vector<float> some;
  for (int64_t row : rows) {
    some.insert(some.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  }
  return some;
}

inline std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// f32 accumulation of k terms of size about 1. fp8 sums blocks of quantised values.
inline double tolerance(int64_t k) { return 2e-6 * std::sqrt(static_cast<double>(k)) + 1e-6; }

inline void expect_reference(GemmPrecision precision, const std::vector<float>& w, Shape shape,
                             const std::vector<float>& a, const std::vector<float>& got) {
  const int64_t m = static_cast<int64_t>(a.size()) / shape.k;
  std::vector<float> want(static_cast<size_t>(m * shape.n));
  gemm_ref(precision, view(w.data(), shape.n, shape.k), view(a.data(), m, shape.k),
           view(want.data(), m, shape.n));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance(shape.k) * (1 + std::fabs(want[i])))
        << describe(precision, shape) << ", m " << m << ", element " << i;
  }
}

}  // namespace dhs::test
