#include <algorithm>

#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/quantize/e4m3.h"
#include "kernels/quantize/quantize.h"

namespace dhs {
namespace {

constexpr int64_t kElementsPerPiece = 16 << 10;  // a piece is worth a thread from some 10 us on

void quantize_row(const float* x, int64_t width, F8E4m3* q, float* scales) {
  for (int64_t first = 0; first < width; first += kQuantizeBlock) {
    const int64_t end = std::min(first + kQuantizeBlock, width);
    float amax = 0;
    for (int64_t i = first; i < end; ++i) amax = e4m3::larger_magnitude(amax, x[i]);
    const float scale = e4m3::block_scale(amax);
    const float inverse = e4m3::inverse_scale(scale);
    scales[first / kQuantizeBlock] = scale;
    for (int64_t i = first; i < end; ++i) q[i] = e4m3::quantized(x[i], inverse);
  }
}

void launch_quantize_cpu(const QuantizeParams& params) {
  const int64_t width = params.x.sizes[1];
  const int64_t rows_per_piece =
      std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, width));
  parallel_for(params.x.sizes[0], rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      quantize_row(params.x.row(row), width, params.q.row(row), params.scales.row(row));
    }
  });
}

}  // namespace

DHS_LAUNCHER(launch_quantize, QuantizeParams)

}  // namespace dhs
