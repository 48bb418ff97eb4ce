// activation: SwiGLU, out = silu(gate) * up with silu(g) = g / (1 + exp(-g)), in f32.
//
// exp is our own polynomial: silu has a relative error of at most 5e-7 for g > -87 and is within
// 1e-35 of the truth below. Inputs must be finite; anything else gives an unspecified value in its
// own element only. Element-wise, so bits depend on nothing but the element; the same on every
// instruction set and device. Rows may be strided, columns are contiguous; out may be the gate half
// in place. Bytes: 12 per output element.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct SwigluParams {
  TensorView<const float, 2> gate_up;  // [num_rows, 2 * width]: gate, then up
  TensorView<float, 2> out;            // [num_rows, width]
};
void launch_swiglu(const SwigluParams& params, Stream stream);
void swiglu_ref(const SwigluParams& params);

}  // namespace dhs
