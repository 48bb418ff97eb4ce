// moe_router: which experts a token visits, and with what weight (DeepSeek-V3 `noaux_tc`).
//
//   s = sigmoid(logits);  choice = s + correction_bias
//   groups: of `num_groups` equal runs of experts keep the `top_groups` with the largest sum of
//   their two
//           best choice values (ties: lowest group), the others cannot be chosen
//   experts = the `top_k` largest choice values (ties: lowest expert)
//   weight  = s[e] (without the bias) / (sum over chosen + 1e-20) when normalize, times scale
//
// Experts of a token come in descending order of choice. All in f32, one token at a time: bits
// depend on the token's logits only. A choice value that is NaN counts as -inf; so whatever the
// logits, a token's experts are distinct and in range. num_groups divides num_experts, and the kept
// groups hold at least top_k experts. Rows may be strided.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct MoeRouterParams {
  TensorView<const float, 2> logits;       // [num_tokens, num_experts]
  const float* correction_bias = nullptr;  // [num_experts], null: none
  int32_t num_groups = 1;
  int32_t top_groups = 1;
  bool normalize = true;
  float scale = 1.0f;
  TensorView<int32_t, 2> experts;  // out: [num_tokens, top_k]
  TensorView<float, 2> weights;    // out: [num_tokens, top_k]
};
void launch_moe_router(const MoeRouterParams& params, Stream stream);
void moe_router_ref(const MoeRouterParams& params);

}  // namespace dhs
