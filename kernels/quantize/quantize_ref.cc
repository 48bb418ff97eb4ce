#include <algorithm>
#include <cmath>

#include "kernels/quantize/quantize.h"

namespace dhs {
namespace {

float scale_of(const float* block, int64_t count) {
  double amax = 1e-4f;
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(block[i])) return NAN;
    amax = std::max(amax, std::fabs(static_cast<double>(block[i])));
  }
  return static_cast<float>(std::exp2(std::ceil(std::log2(amax / 448))));
}

}  // namespace

void quantize_ref(const QuantizeParams& params) {
  const int64_t width = params.x.sizes[1];
  for (int64_t row = 0; row < params.x.sizes[0]; ++row) {
    for (int64_t first = 0; first < width; first += kQuantizeBlock) {
      const int64_t count = std::min(kQuantizeBlock, width - first);
      const float scale = scale_of(params.x.row(row) + first, count);
      params.scales(row, first / kQuantizeBlock) = scale;
      for (int64_t i = first; i < first + count; ++i) {
        params.q(row, i) = std::isnan(scale) ? F8E4m3{0} : f32_to_f8e4m3(params.x(row, i) / scale);
      }
    }
  }
}

}  // namespace dhs
