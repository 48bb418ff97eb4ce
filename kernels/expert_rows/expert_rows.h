// expert_rows: tokens to the experts they chose, and the experts' outputs back to the tokens.
//
// A pair is (token, rank): the token's rank-th choice, numbered token * top_k + rank.
//   gather   in[i, :] = x[pairs[i] / top_k, :]
//   scatter  out[pairs[i], :] = y[i, :]
//   combine  out[t, :] += sum over ranks r ascending of weights[t, r] * y[t * top_k + r, :]
// All in f32. Each token is combined by itself in order of rank (falling order of choice), so its
// bits do not depend on the other tokens of the batch. Bytes moved: gather and scatter 8 per
// element, combine 4 * (top_k + 2).
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct ExpertGatherParams {
  TensorView<const float, 2> x;        // [num_tokens, width]
  TensorView<const int32_t, 1> pairs;  // [num_pairs] of one expert
  int32_t top_k = 1;
  TensorView<float, 2> in;  // out: [num_pairs, width]
};
void launch_expert_gather(const ExpertGatherParams& params, Stream stream);

struct ExpertScatterParams {
  TensorView<const float, 2> y;        // [num_pairs, width]
  TensorView<const int32_t, 1> pairs;  // [num_pairs] of one expert, distinct
  TensorView<float, 2> out;            // out: [num_tokens * top_k, width], rows `pairs`
};
void launch_expert_scatter(const ExpertScatterParams& params, Stream stream);

struct ExpertCombineParams {
  TensorView<const float, 2> y;        // [num_tokens * top_k, width]
  TensorView<const float, 2> weights;  // [num_tokens, top_k]
  TensorView<float, 2> out;            // in/out: [num_tokens, width]
};
void launch_expert_combine(const ExpertCombineParams& params, Stream stream);

}  // namespace dhs
