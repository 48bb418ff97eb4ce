#include <cmath>

#include "kernels/norm/norm.h"

namespace dhs {

void rms_norm_ref(const RmsNormParams& params) {
  const int64_t width = params.x.sizes[1];
  for (int64_t row = 0; row < params.x.sizes[0]; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) {
      sum += static_cast<double>(params.x(row, i)) * params.x(row, i);
    }
    const double root = std::sqrt(sum / static_cast<double>(width) + params.eps);
    for (int64_t i = 0; i < width; ++i) {
      params.out(row, i) = static_cast<float>(params.weight[i] * params.x(row, i) / root);
    }
  }
}

void layer_norm_ref(const LayerNormParams& params) {
  const int64_t width = params.x.sizes[1];
  for (int64_t row = 0; row < params.x.sizes[0]; ++row) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) sum += params.x(row, i);
    const double mean = sum / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) squares += std::pow(params.x(row, i) - mean, 2);
    const double root = std::sqrt(squares / static_cast<double>(width) + params.eps);
    for (int64_t i = 0; i < width; ++i) {
      params.out(row, i) =
          static_cast<float>(params.weight[i] * (params.x(row, i) - mean) / root + params.bias[i]);
    }
  }
}

}  // namespace dhs
