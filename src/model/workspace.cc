#include "model/workspace.h"

#include <algorithm>

#include "dhisparse/base.h"

namespace dhs {

absl::StatusOr<Workspace> reserve_workspace(Device& device, const TargetConfig& config,
                                            const Sharding& sharding, const ModelOptions& options) {
  Workspace ws;
  const int64_t rows = options.max_query_rows;
  const int64_t expert_rows = sharding.expert_rows(rows);
  const int64_t pairs = expert_rows * config.experts_per_token;
  const int64_t num_own_experts = sharding.experts.part_of(config.num_experts);
  const int64_t widest_rows =
      std::max<int64_t>({rows * config.dense_intermediate_dim, pairs * config.moe_intermediate_dim,
                         rows * config.moe_intermediate_dim * config.num_shared_experts});
  const int64_t num_tapped = options.taps_final_hidden ? 1 : std::ssize(options.tapped_layers);
  const int64_t latent_columns = int64_t{config.num_heads} * config.kv_lora_rank;
  auto lay_out = [&](ArenaCarver& carver) {
    auto take = [&](int64_t r, int64_t columns) {
      return view(carver.take<float>(r * columns).data, r, columns);
    };
    auto take_int = [&](int64_t r, int64_t columns) {
      return view(carver.take<int32_t>(r * columns).data, r, columns);
    };
    ws.hidden = take(rows, config.hidden_dim);
    ws.normed = take(rows, config.hidden_dim);
    ws.down = take(rows, config.q_lora_rank + config.latent_row_dim() + config.index_dim);
    ws.up = take(rows, int64_t{config.num_heads} * config.qk_head_dim() +
                           int64_t{config.index_num_heads} * config.index_dim);
    ws.head_weights = take(rows, config.index_num_heads);
    ws.query_latent = take(rows, latent_columns);
    ws.attended = take(rows, latent_columns);
    ws.values = take(rows, int64_t{config.num_heads} * config.v_head_dim);
    ws.scores = take(std::min(rows, kScoreTileRows), options.max_context);
    ws.selection = take_int(rows, config.index_top_k);
    ws.sublayer_out = take(rows, config.hidden_dim);
    ws.gate_up = carver.take<float>(2 * widest_rows);
    ws.activated = carver.take<float>(widest_rows);
    ws.all_rows = take(sharding.gathering == nullptr ? 0 : expert_rows, config.hidden_dim);
    ws.router_logits = take(expert_rows, config.num_experts);
    ws.experts = take_int(expert_rows, config.experts_per_token);
    ws.expert_weights = take(expert_rows, config.experts_per_token);
    ws.expert_offsets = carver.take<int32_t>(num_own_experts + 1);
    ws.expert_pairs = carver.take<int32_t>(pairs);
    ws.row_of_pair = carver.take<int32_t>(pairs);
    ws.expert_rows = take(pairs, config.hidden_dim);
    ws.taps = take(rows, num_tapped * config.hidden_dim);
    ws.logit_in = take(options.max_logit_rows, config.hidden_dim);
    ws.logits = take(options.max_logit_rows, config.vocab_size);
  };
  DHS_ASSIGN_OR_RETURN(ws.memory, carve(device, lay_out));
  return ws;
}

}  // namespace dhs
