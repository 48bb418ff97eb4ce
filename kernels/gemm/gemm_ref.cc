#include <vector>

#include "kernels/gemm/fp8_blocks.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quantize/quantize.h"

namespace dhs {
namespace {

// The values that the precision leaves of the rows, dense.
std::vector<double> rounded_rows(GemmPrecision precision, TensorView<const float, 2> x) {
  std::vector<double> values;
  for (int64_t row = 0; row < x.sizes[0]; ++row) {
    for (int64_t i = 0; i < x.sizes[1]; ++i) {
      const float value = x(row, i);
      values.push_back(precision == GemmPrecision::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value);
    }
  }
  return values;
}

std::vector<double> scaled_back(const std::vector<F8E4m3>& q, const std::vector<float>& scales,
                                int64_t k, int64_t rows_per_scale) {
  const int64_t num_blocks = (k + kFp8BlockColumns - 1) / kFp8BlockColumns;
  std::vector<double> values;
  for (size_t i = 0; i < q.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / k / rows_per_scale;
    const int64_t block = static_cast<int64_t>(i) % k / kFp8BlockColumns;
    const double scale = scales[static_cast<size_t>(row * num_blocks + block)];
    values.push_back(scale * f8e4m3_to_f32(q[i]));
  }
  return values;
}

std::vector<double> weight_values(GemmPrecision precision, TensorView<const float, 2> w) {
  if (precision != GemmPrecision::kFp8) return rounded_rows(precision, w);
  const int64_t n = w.sizes[0], k = w.sizes[1];
  const int64_t num_blocks = (k + kFp8BlockColumns - 1) / kFp8BlockColumns;
  std::vector<F8E4m3> q(static_cast<size_t>(n * k));
  std::vector<float> scales(static_cast<size_t>((n / kFp8BlockRows + 1) * num_blocks));
  quantize_weights(w, q.data(), k, scales.data(), num_blocks);
  return scaled_back(q, scales, k, kFp8BlockRows);
}

std::vector<double> row_values(GemmPrecision precision, TensorView<const float, 2> a) {
  if (precision != GemmPrecision::kFp8) return rounded_rows(precision, a);
  const int64_t m = a.sizes[0], k = a.sizes[1];
  const int64_t num_blocks = (k + kFp8BlockColumns - 1) / kFp8BlockColumns;
  std::vector<F8E4m3> q(static_cast<size_t>(m * k));
  std::vector<float> scales(static_cast<size_t>(m * num_blocks));
  quantize_ref({a, view(q.data(), m, k), view(scales.data(), m, num_blocks)});
  return scaled_back(q, scales, k, 1);
}

}  // namespace

void gemm_ref(GemmPrecision precision, TensorView<const float, 2> w, TensorView<const float, 2> a,
              TensorView<float, 2> out) {
  const std::vector<double> weights = weight_values(precision, w);
  const std::vector<double> rows = row_values(precision, a);
  const int64_t k = w.sizes[1];
  for (int64_t row = 0; row < a.sizes[0]; ++row) {
    for (int64_t column = 0; column < w.sizes[0]; ++column) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum +=
            rows[static_cast<size_t>(row * k + i)] * weights[static_cast<size_t>(column * k + i)];
      }
      out(row, column) = static_cast<float>(sum);
    }
  }
}

}  // namespace dhs
