#include "model/mlp.h"

#include "kernels/activation/activation.h"
#include "kernels/expert_rows/expert_rows.h"
#include "kernels/moe_router/moe_router.h"

namespace dhs {
namespace {

struct SwigluRows {
  TensorView<float, 2> gate_up;
  TensorView<float, 2> activated;
};

SwigluRows swiglu_rows(const MlpContext& context, const PackedMlp& weights, int64_t n) {
  return {view(context.ws.gate_up.data, n, 2 * weights.intermediate_dim),
          view(context.ws.activated.data, n, weights.intermediate_dim)};
}

// out = down(silu(gate(in)) * up(in)), for any number of rows.
void run_swiglu(const MlpContext& context, const PackedMlp& weights, TensorView<const float, 2> in,
                TensorView<float, 2> out) {
  const SwigluRows rows = swiglu_rows(context, weights, in.sizes[0]);
  launch_gemm({weights.gate_up.get(), in, rows.gate_up}, context.stream());
  launch_swiglu({rows.gate_up, rows.activated}, context.stream());
  launch_gemm({weights.down.get(), rows.activated, out}, context.stream());
}

void route(const MlpContext& context, const PackedMoe& weights, int layer) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const int64_t n = context.num_rows;
  launch_gemm({weights.router.get(), first_rows(ws.normed, n), first_rows(ws.router_logits, n)},
              context.stream());
  launch_moe_router({.logits = first_rows(ws.router_logits, n),
                     .correction_bias = weights.choice_bias.data(),
                     .num_groups = config.num_expert_groups,
                     .top_groups = config.top_expert_groups,
                     .normalize = config.normalize_expert_weights,
                     .scale = static_cast<float>(config.routed_scale),
                     .experts = first_rows(ws.experts, n),
                     .weights = first_rows(ws.expert_weights, n)},
                    context.stream());
  if (context.taps != nullptr) {
    context.device.synchronize();
    context.taps->on_experts(layer, first_rows(ws.experts, n));
    context.taps->on_tensor(Tap::kRouterWeights, layer, first_rows(ws.expert_weights, n));
  }
}

// Every expert over the tokens that chose it: the pairs sorted by expert, one grouped product for
// all of them. How many pairs an expert has is known to the device only.
void run_experts(const MlpContext& context, const PackedMoe& weights) {
  Workspace& ws = context.ws;
  const auto experts = first_rows(ws.experts, context.num_rows);
  const auto top_k = static_cast<int32_t>(experts.sizes[1]);
  const int64_t num_pairs = context.num_rows * top_k;
  const auto pairs = view(ws.expert_pairs.data, num_pairs);
  const auto rows = first_rows(ws.expert_rows, num_pairs);
  launch_expert_plan({.experts = experts,
                      .num_experts = static_cast<int32_t>(ws.expert_offsets.sizes[0] - 1),
                      .offsets = ws.expert_offsets,
                      .pairs = pairs,
                      .row_of_pair = view(ws.row_of_pair.data, num_pairs)},
                     context.stream());
  launch_expert_gather({.x = first_rows(ws.normed, context.num_rows),
                        .pairs = pairs,
                        .num_pairs = ws.expert_offsets.data + ws.expert_offsets.sizes[0] - 1,
                        .top_k = top_k,
                        .in = rows},
                       context.stream());
  const SwigluRows swiglu = swiglu_rows(context, weights.experts, num_pairs);
  launch_grouped_gemm({.weights = weights.experts.gate_up.get(),
                       .offsets = ws.expert_offsets,
                       .a = rows,
                       .out = swiglu.gate_up},
                      context.stream());
  launch_swiglu({swiglu.gate_up, swiglu.activated}, context.stream());
  // In place: an expert's output has its input's shape, and the input is not needed again.
  launch_grouped_gemm({.weights = weights.experts.down.get(),
                       .offsets = ws.expert_offsets,
                       .a = swiglu.activated,
                       .out = rows},
                      context.stream());
}

}  // namespace

void run_mlp(const MlpContext& context, const PackedLayer& weights, int layer) {
  const int64_t n = context.num_rows;
  const auto in = first_rows(context.ws.normed, n);
  const auto out = first_rows(context.ws.sublayer_out, n);
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
    context.device.fill(out.data, std::byte{0}, n * out.sizes[1] * int64_t{sizeof(float)},
                        context.stream());
  }
  // The shared expert first, then the ranks: the order that makes a token's sum independent of its
  // neighbours.
  const int64_t num_pairs = n * context.ws.experts.sizes[1];
  launch_expert_combine({.y = first_rows(context.ws.expert_rows, num_pairs),
                         .weights = first_rows(context.ws.expert_weights, n),
                         .row_of_pair = view<const int32_t>(context.ws.row_of_pair.data, num_pairs),
                         .out = out},
                        context.stream());
}

}  // namespace dhs
