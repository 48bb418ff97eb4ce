#include "model/mlp.h"

#include "kernels/activation/activation.h"
#include "kernels/add/add.h"
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

void route(const MlpContext& context, const PackedMoe& weights, TensorView<const float, 2> in,
           int layer) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const int64_t n = in.sizes[0];
  launch_gemm({weights.router.get(), in, first_rows(ws.router_logits, n)}, context.stream());
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

// This rank's experts over the tokens that chose them: the pairs sorted by expert, one grouped
// product for all of them. How many pairs an expert has is known to the device only.
void run_experts(const MlpContext& context, const PackedMoe& weights,
                 TensorView<const float, 2> in) {
  Workspace& ws = context.ws;
  const auto experts = first_rows(ws.experts, in.sizes[0]);
  const auto top_k = static_cast<int32_t>(experts.sizes[1]);
  const int64_t num_pairs = in.sizes[0] * top_k;
  const auto pairs = view(ws.expert_pairs.data, num_pairs);
  const auto rows = first_rows(ws.expert_rows, num_pairs);
  launch_expert_plan({.experts = experts,
                      .first_expert = weights.first_expert,
                      .num_experts = weights.num_experts,
                      .offsets = ws.expert_offsets,
                      .pairs = pairs,
                      .row_of_pair = view(ws.row_of_pair.data, num_pairs)},
                     context.stream());
  launch_expert_gather({.x = in,
                        .pairs = pairs,
                        .num_pairs = ws.expert_offsets.data + weights.num_experts,
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

// Adds to each row what this rank's experts made of it, in falling order of its choice.
void combine(const MlpContext& context, TensorView<float, 2> out) {
  const int64_t num_pairs = out.sizes[0] * context.ws.experts.sizes[1];
  launch_expert_combine({.y = first_rows(context.ws.expert_rows, num_pairs),
                         .weights = first_rows(context.ws.expert_weights, out.sizes[0]),
                         .row_of_pair = view<const int32_t>(context.ws.row_of_pair.data, num_pairs),
                         .out = out},
                        context.stream());
}

void clear(const MlpContext& context, TensorView<float, 2> rows) {
  context.device.fill(rows.data, std::byte{0},
                      rows.sizes[0] * rows.sizes[1] * int64_t{sizeof(float)}, context.stream());
}

void run_shared_expert(const MlpContext& context, const PackedMoe& weights,
                       TensorView<const float, 2> in, TensorView<float, 2> out) {
  if (!weights.shared_expert.has_value()) return clear(context, out);
  run_swiglu(context, *weights.shared_expert, in, out);
}

// The shared expert first, then the choices: an order that makes a row's sum independent of its
// neighbours.
void run_moe(const MlpContext& context, const PackedMoe& weights, int layer) {
  const auto in = first_rows(context.ws.normed, context.num_rows);
  const auto out = first_rows(context.ws.sublayer_out, context.num_rows);
  route(context, weights, in, layer);
  run_experts(context, weights, in);
  run_shared_expert(context, weights, in, out);
  combine(context, out);
}

// The rows of all ranks, each rank's padded with zeros to as many as the largest has.
TensorView<float, 2> gather_ranks(const MlpContext& context) {
  Workspace& ws = context.ws;
  Communicator& ranks = *context.sharding.gathering;
  const auto own = first_rows(ws.normed, context.max_rank_rows);
  const int64_t num_padding = context.max_rank_rows - context.num_rows;
  clear(context, view(ws.normed.row(context.num_rows), num_padding, ws.normed.sizes[1]));
  const auto all = first_rows(ws.all_rows, ranks.size() * context.max_rank_rows);
  ranks.all_gather(own.data, all.data,
                   context.max_rank_rows * own.sizes[1] * int64_t{sizeof(float)}, context.stream());
  return all;
}

// The same over rows that lie on several ranks, as the experts do. What the ranks' experts make of
// a row is summed in ascending order of rank and then added to the shared expert's part.
void run_moe_of_all_ranks(const MlpContext& context, const PackedMoe& weights, int layer) {
  Communicator& ranks = *context.sharding.gathering;
  const auto all = gather_ranks(context);
  route(context, weights, all, layer);
  run_experts(context, weights, all);
  clear(context, all);  // its rows are with the experts: from here on it holds sums
  combine(context, all);
  const int64_t rank_floats = context.max_rank_rows * all.sizes[1];
  float* sums = all.data + ranks.rank() * rank_floats;
  ranks.reduce_scatter_sum(all.data, sums, rank_floats, context.stream());
  const auto out = first_rows(context.ws.sublayer_out, context.num_rows);
  run_shared_expert(context, weights, first_rows(context.ws.normed, context.num_rows), out);
  launch_add({view<const float>(sums, context.num_rows, all.sizes[1]), out}, context.stream());
}

}  // namespace

void run_mlp(const MlpContext& context, const PackedLayer& weights, int layer) {
  const auto in = first_rows(context.ws.normed, context.num_rows);
  const auto out = first_rows(context.ws.sublayer_out, context.num_rows);
  if (weights.dense.has_value()) {
    run_swiglu(context, *weights.dense, in, out);
  } else if (context.sharding.gathering != nullptr) {
    run_moe_of_all_ranks(context, *weights.moe, layer);
  } else {
    run_moe(context, *weights.moe, layer);
  }
  if (context.sharding.summing != nullptr) {
    context.sharding.summing->all_reduce_sum(out.data, context.num_rows * out.sizes[1],
                                             context.stream());
  }
}

}  // namespace dhs
