#include "kernels/gemm/gemm.h"

namespace dhs {
namespace {

double rounded(GemmPrecision precision, float value) {
  return precision == GemmPrecision::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

}  // namespace

void gemm_ref(GemmPrecision precision, TensorView<const float, 2> w, TensorView<const float, 2> a,
              TensorView<float, 2> out) {
  for (int64_t row = 0; row < a.sizes[0]; ++row) {
    for (int64_t column = 0; column < w.sizes[0]; ++column) {
      double sum = 0;
      for (int64_t i = 0; i < w.sizes[1]; ++i) {
        sum += rounded(precision, a(row, i)) * rounded(precision, w(column, i));
      }
      out(row, column) = static_cast<float>(sum);
    }
  }
}

}  // namespace dhs
