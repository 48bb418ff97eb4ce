#include "model/mlp.h"

#include <algorithm>

#include "kernels/activation/activation.h"
#include "kernels/expert_rows/expert_rows.h"
#include "kernels/moe_router/moe_router.h"

namespace dhs {
namespace {

// out = down(silu(gate(in)) * up(in)), for any number of rows.
void run_swiglu(const MlpContext& context, const PackedMlp& weights, TensorView<const float, 2> in,
                TensorView<float, 2> out) {
  const int64_t n = in.sizes[0];
  const auto gate_up = slice(context.ws.gate_up, n, 0, 2 * weights.intermediate_dim);
  const auto activated = slice(context.ws.activated, n, 0, weights.intermediate_dim);
  launch_gemm({weights.gate_up.get(), in, gate_up}, context.stream);
  launch_swiglu({gate_up, activated}, context.stream);
  launch_gemm({weights.down.get(), activated, out}, context.stream);
}

void route(const MlpContext& context, const PackedMoe& weights, int layer) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const int64_t n = context.num_rows;
  launch_gemm({weights.router.get(), first_rows(ws.normed, n), first_rows(ws.router_logits, n)},
              context.stream);
  launch_moe_router({.logits = first_rows(ws.router_logits, n),
                     .correction_bias = weights.choice_bias.data(),
                     .num_groups = config.num_expert_groups,
                     .top_groups = config.top_expert_groups,
                     .normalize = config.normalize_expert_weights,
                     .scale = static_cast<float>(config.routed_scale),
                     .experts = first_rows(ws.experts, n),
                     .weights = first_rows(ws.expert_weights, n)},
                    context.stream);
  if (context.taps != nullptr) {
    context.taps->on_experts(layer, first_rows(ws.experts, n));
    context.taps->on_tensor(Tap::kRouterWeights, layer, first_rows(ws.expert_weights, n));
  }
}

// The (token, rank) pairs that chose `expert`, as token * top + rank, in ascending order.
int64_t pairs_of_expert(const MlpContext& context, int32_t expert) {
  Workspace& ws = context.ws;
  const int64_t top = ws.experts.sizes[1];
  int64_t count = 0;
  for (int64_t pair = 0; pair < context.num_rows * top; ++pair) {
    if (ws.experts.data[pair] == expert) ws.expert_rows(count++) = static_cast<int32_t>(pair);
  }
  return count;
}

// Each expert runs once over the tokens that chose it; results wait in expert_out by (token, rank).
void run_experts(const MlpContext& context, const PackedMoe& weights) {
  Workspace& ws = context.ws;
  const auto top_k = static_cast<int32_t>(ws.experts.sizes[1]);
  for (size_t expert = 0; expert < weights.experts.size(); ++expert) {
    const int64_t count = pairs_of_expert(context, static_cast<int32_t>(expert));
    if (count == 0) continue;
    const auto pairs = view<const int32_t>(ws.expert_rows.data, count);
    // In place: an expert's output has its input's shape, and the input is not needed again.
    const auto rows = first_rows(ws.expert_in, count);
    launch_expert_gather({.x = ws.normed, .pairs = pairs, .top_k = top_k, .in = rows},
                         context.stream);
    run_swiglu(context, weights.experts[expert], rows, rows);
    launch_expert_scatter({.y = rows, .pairs = pairs, .out = ws.expert_out}, context.stream);
  }
}

}  // namespace

void run_mlp(const MlpContext& context, const PackedLayer& weights, int layer) {
  const auto in = first_rows(context.ws.normed, context.num_rows);
  const auto out = first_rows(context.ws.sublayer_out, context.num_rows);
  if (weights.dense.has_value()) {
    run_swiglu(context, *weights.dense, in, out);
    return;
  }
  const PackedMoe& moe = *weights.moe;
  route(context, moe, layer);
  run_experts(context, moe);
  if (moe.shared_expert.has_value()) {
    run_swiglu(context, *moe.shared_expert, in, out);
  } else {
    std::fill_n(out.data, out.sizes[0] * out.sizes[1], 0.0f);
  }
  // The shared expert first, then the ranks: the order that makes a token's sum independent of its
  // neighbours.
  launch_expert_combine({.y = context.ws.expert_out,
                         .weights = first_rows(context.ws.expert_weights, context.num_rows),
                         .out = out},
                        context.stream);
}

}  // namespace dhs
