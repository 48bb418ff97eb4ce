// quantize: f32 rows to e4m3 with one power-of-two scale per 128 columns.
//
//   scale[i, b] = max(amax of the block, 1e-4) / 448, rounded up to a power of two
//   q[i, j] = e4m3(x[i, j] / scale[i, j / 128]), to nearest, ties to even
// (DeepSeek-V3, section 3.3; power-of-two scales as of V3.1.) A block at the end of a row may be
// short. A block that holds a value that is not finite gets the scale NaN and zeros, so that
// whatever is computed with it is NaN. Bits of a row depend on that row only, and are the same on
// every backend. Bytes: 5 per element, 4 per scale.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int64_t kQuantizeBlock = 128;

struct QuantizeParams {
  TensorView<const float, 2> x;  // [num_rows, width], rows may be strided, columns contiguous
  TensorView<F8E4m3, 2> q;       // out: [num_rows, width], rows may be strided
  TensorView<float, 2> scales;   // out: [num_rows, ceil(width / 128)], rows may be strided
};
void launch_quantize(const QuantizeParams& params, Stream stream);
void quantize_ref(const QuantizeParams& params);

}  // namespace dhs
