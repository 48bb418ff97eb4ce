// fp8_blocks: weights in e4m3 with one f32 scale per block of 128 rows by 128 columns, the same
// bits on every backend.
//
// The scale is the power of two that fits, if the block is exact in it: then the weights came from
// a checkpoint quantised so, and keep its bits. Otherwise it is amax / 448, which gives the bits
// back that a checkpoint quantised with such scales held.
#pragma once

#include <algorithm>

#include "kernels/gemm/gemm.h"
#include "kernels/quantize/e4m3.h"

namespace dhs {

inline bool is_exact_block(TensorView<const float, 2> w, float inverse) {
  for (int64_t row = 0; row < w.sizes[0]; ++row) {
    for (int64_t i = 0; i < w.sizes[1]; ++i) {
      const float value = w.row(row)[i] * inverse;
      if (e4m3::decode(e4m3::encode(value)) != value) return false;
    }
  }
  return true;
}

// w: one block, at most 128 x 128. The rows of q are q_stride apart. Returns the scale: NaN, and
// zeros in q, when a weight is not finite.
inline float quantize_weight_block(TensorView<const float, 2> w, F8E4m3* q, int64_t q_stride) {
  float amax = 0;
  for (int64_t row = 0; row < w.sizes[0]; ++row) {
    for (int64_t i = 0; i < w.sizes[1]; ++i) amax = e4m3::larger_magnitude(amax, w.row(row)[i]);
  }
  float scale = e4m3::block_scale(amax);
  // Below 2^-110 the quotients would not be exact; nothing a model holds is so small.
  if (e4m3::is_finite(scale) && !is_exact_block(w, 1 / scale)) scale = std::max(amax, 1e-30f) / 448;
  for (int64_t row = 0; row < w.sizes[0]; ++row) {
    for (int64_t i = 0; i < w.sizes[1]; ++i) {
      const F8E4m3 bits = e4m3::encode(w.row(row)[i] / scale);
      q[row * q_stride + i] = e4m3::is_finite(scale) ? bits : F8E4m3{0};
    }
  }
  return scale;
}

// All blocks of w: [n, k], which starts at a block boundary. q has rows of q_stride; scales is
// [ceil(n / 128), scales_stride].
inline void quantize_weights(TensorView<const float, 2> w, F8E4m3* q, int64_t q_stride,
                             float* scales, int64_t scales_stride) {
  for (int64_t row = 0; row < w.sizes[0]; row += kFp8BlockRows) {
    for (int64_t column = 0; column < w.sizes[1]; column += kFp8BlockColumns) {
      TensorView<const float, 2> block = w;
      block.data = w.row(row) + column;
      block.sizes[0] = std::min(kFp8BlockRows, w.sizes[0] - row);
      block.sizes[1] = std::min(kFp8BlockColumns, w.sizes[1] - column);
      scales[row / kFp8BlockRows * scales_stride + column / kFp8BlockColumns] =
          quantize_weight_block(block, q + row * q_stride + column, q_stride);
    }
  }
}

}  // namespace dhs
