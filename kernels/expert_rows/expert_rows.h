// expert_rows: tokens to the experts they chose, and the experts' outputs back to the tokens.
//
// A pair is (token, rank): the token's rank-th choice, numbered token * top_k + rank.
//   plan     sorts the pairs by expert, pairs of one expert in rising order: pairs[i], its inverse
//            row_of_pair, and offsets[e]: pairs of expert e are [offsets[e], offsets[e + 1])
//   gather   in[i, :] = x[pairs[i] / top_k, :]
//   combine  out[t, :] += sum over ranks r ascending of weights[t, r] * y[row_of_pair[t * top_k +
//            r], :]
// Pairs whose expert is outside [first_expert, first_expert + num_experts) are not planned: their
// row_of_pair is -1, combine leaves them out, and rows of `in` beyond the last offset are not
// touched. All in f32, products and sums rounded one by one (no fused multiply-add). Each token is
// combined by itself in order of rank (falling order of choice), so its bits do not depend on the
// other tokens of the batch. Bytes moved: plan 12 per pair, gather 8 per element, combine
// 4 * (top_k + 2) per element.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct ExpertPlanParams {
  TensorView<const int32_t, 2> experts;  // [num_tokens, top_k]
  int32_t first_expert = 0;
  int32_t num_experts = 0;             // of this rank
  TensorView<int32_t, 1> offsets;      // out: [num_experts + 1]
  TensorView<int32_t, 1> pairs;        // out: [num_tokens * top_k], the first offsets[last] valid
  TensorView<int32_t, 1> row_of_pair;  // out: [num_tokens * top_k]
};
void launch_expert_plan(const ExpertPlanParams& params, Stream stream);

struct ExpertGatherParams {
  TensorView<const float, 2> x;        // [num_tokens, width]
  TensorView<const int32_t, 1> pairs;  // [num_tokens * top_k]
  const int32_t* num_pairs = nullptr;  // the last offset
  int32_t top_k = 1;
  TensorView<float, 2> in;  // out: [num_tokens * top_k, width]
};
void launch_expert_gather(const ExpertGatherParams& params, Stream stream);

struct ExpertCombineParams {
  TensorView<const float, 2> y;              // [num_tokens * top_k, width] in the plan's order
  TensorView<const float, 2> weights;        // [num_tokens, top_k]
  TensorView<const int32_t, 1> row_of_pair;  // [num_tokens * top_k]
  TensorView<float, 2> out;                  // in/out: [num_tokens, width]
};
void launch_expert_combine(const ExpertCombineParams& params, Stream stream);

}  // namespace dhs
