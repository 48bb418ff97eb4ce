// softmax: each row's distribution over the vocabulary at the row's temperature.
//
//   out[i, t] = exp((x[i, t] - max_i) / T_i) / sum_t exp((x[i, t] - max_i) / T_i)
//   T_i = 0:   1 for the row's largest, the lowest token of equals; 0 for the others
//
// Terms are f32, their sum is f64 over f32 sums of at most 4096 terms (CPU) or of one thread's
// (CUDA), in an order that depends on the width only: the bits of a row depend on that row and the
// device alone. A row's sum is 1 within 1e-5. Logits are not NaN and at least one is finite; -inf
// gives 0. Rows may be strided, columns are contiguous; out may be the logits in place.
// Bytes: 16 per element, of which the second half usually come from the cache; FLOPs: about 25.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct SoftmaxParams {
  TensorView<const float, 2> logits;       // [num_rows, width]
  TensorView<const float, 1> temperature;  // [num_rows], >= 0
  TensorView<float, 2> out;                // [num_rows, width]
};
void launch_softmax(const SoftmaxParams& params, Stream stream);
void softmax_ref(const SoftmaxParams& params);

}  // namespace dhs
