// norm: RMSNorm and LayerNorm over the last axis, in f32.
//
//   rms_norm    y = w * (x / sqrt(mean(x^2) + eps))
//   layer_norm  y = w * (x - mean(x)) / sqrt(var(x) + eps) + b        (population variance)
//
// Sums run in a fixed order that depends on the width only: 16 partial sums over the columns modulo
// 16, then a fixed tree. So the bits of a row do not depend on the batch, on threads or (not
// promised, but so) on the instruction set and the device. Rows may be strided, columns are
// contiguous; in-place is allowed. Bytes: 8 per element (a row is read again from the cache),
// FLOPs: 4 (rms), 7 (layer).
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct RmsNormParams {
  TensorView<const float, 2> x;   // [num_rows, width]
  const float* weight = nullptr;  // [width]
  float eps = 1e-6f;
  TensorView<float, 2> out;  // [num_rows, width]
};
void launch_rms_norm(const RmsNormParams& params, Stream stream);
void rms_norm_ref(const RmsNormParams& params);

// rms_norm of every head of every token, all with one weight: out may be x.
struct HeadNormParams {
  TensorView<const float, 3> x;   // [num_tokens, num_heads, width], last axis contiguous
  const float* weight = nullptr;  // [width]
  float eps = 1e-6f;
  TensorView<float, 3> out;  // [num_tokens, num_heads, width], last axis contiguous
};
void launch_head_norm(const HeadNormParams& params, Stream stream);

struct LayerNormParams {
  TensorView<const float, 2> x;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float eps = 1e-6f;
  TensorView<float, 2> out;
};
void launch_layer_norm(const LayerNormParams& params, Stream stream);
void layer_norm_ref(const LayerNormParams& params);

}  // namespace dhs
