// markov_head: the small steps of DSpark's sequential head between its products. For each of n
// chains, with e the embedding of the token before and r its width,
//
//   markov_gate   out = sigmoid(gate + bias) * e
//   markov_cell   g = sigmoid(joint[0:r] + bias[0:r]),  c = joint[r:2r] + bias[r:2r],
//                 o = joint[2r:3r] + bias[2r:3r]
//                 state = g * state + (1 - g) * tanh(c);   out = tanh(o)
//   confidence    out = sigmoid((weight . [y; e] + bias) / temperature)
//
// The products before them (gate_proj [y; e], joint_proj [s; e; y]) are gemms without a bias. f32,
// with the math library's exp and tanh; confidence sums in an order that depends on the widths
// only. So the bits of a row depend on that row and the device alone. sigmoid and tanh saturate: no
// input but NaN gives NaN. Rows may be strided, columns are contiguous. Bytes: about 4 per element
// of every operand.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct MarkovGateParams {
  TensorView<const float, 2> gate;  // [n, r]
  TensorView<const float, 2> e;     // [n, r]
  const float* bias = nullptr;      // [r], device memory
  TensorView<float, 2> out;         // [n, r], may be gate or e
};
void launch_markov_gate(const MarkovGateParams& params, Stream stream);
void markov_gate_ref(const MarkovGateParams& params);

struct MarkovCellParams {
  TensorView<const float, 2> joint;  // [n, 3r]: gate, candidate, output
  const float* bias = nullptr;       // [3r], device memory
  TensorView<float, 2> state;        // in/out: [n, r]
  TensorView<float, 2> out;          // [n, r], overlaps nothing
};
void launch_markov_cell(const MarkovCellParams& params, Stream stream);
void markov_cell_ref(const MarkovCellParams& params);

struct ConfidenceParams {
  TensorView<const float, 2> y;   // [n, hidden_dim]
  TensorView<const float, 2> e;   // [n, r], or empty: sizes {n, 0}
  const float* weight = nullptr;  // [hidden_dim + r], device memory
  float bias = 0.0f;
  float temperature = 1.0f;  // > 0
  TensorView<float, 1> out;  // [n], may be strided
};
void launch_confidence(const ConfidenceParams& params, Stream stream);
void confidence_ref(const ConfidenceParams& params);

}  // namespace dhs
