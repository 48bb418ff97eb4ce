#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/index_score/index_score.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/sparse_attention/sparse_attention.h"
#include "kernels/top_k/top_k.h"

namespace dhs {
namespace {

// Columns of ws.down and ws.up; the index parts exist in layers with an indexer only.
struct Columns {
  explicit Columns(const TargetConfig& config)
      : kv_latent(config.q_lora_rank),
        kv_rope(kv_latent + config.kv_lora_rank),
        index_key(kv_rope + config.qk_rope_dim),
        index_query(int64_t{config.num_heads} * config.qk_head_dim()) {}
  int64_t kv_latent;
  int64_t kv_rope;
  int64_t index_key;
  int64_t index_query;
};

void tap(const AttentionContext& context, Tap point, int layer, TensorView<const float, 2> value) {
  if (context.taps == nullptr) return;
  context.device.synchronize();
  context.taps->on_tensor(point, layer, value);
}

void rotate(const AttentionContext& context, TensorView<float, 3> x, RopePairing pairing) {
  launch_rope({.x = x,
               .positions = context.rows.positions,
               .inverse_frequency = context.rope_frequencies,
               .rope_dim = context.config.qk_rope_dim,
               .pairing = pairing,
               .magnitude = static_cast<float>(context.config.rope_magnitude)},
              context.stream());
}

TensorView<float, 3> as_one_head(const TensorView<float, 2>& x) {
  return {x.data, {x.sizes[0], 1, x.sizes[1]}, {x.strides[0], 0, 1}};
}

// x -> query latent before its norm, KV latent, rope key (and index key before its norm).
void project_down(const AttentionContext& context, const PackedLayer& weights, int layer) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const int64_t n = context.rows.num_rows();
  const Columns columns(config);
  const auto eps = static_cast<float>(config.latent_norm_eps);
  const int64_t width = columns.index_key + (weights.has_indexer ? config.index_dim : 0);
  launch_gemm({weights.down.get(), first_rows(ws.normed, n), slice(ws.down, n, 0, width)},
              context.stream());
  const auto latent = slice(ws.down, n, columns.kv_latent, config.kv_lora_rank);
  launch_rms_norm({latent, weights.kv_a_norm.data(), eps, latent}, context.stream());
  const auto rope_key = slice(ws.down, n, columns.kv_rope, config.qk_rope_dim);
  rotate(context, as_one_head(rope_key), RopePairing::kInterleaved);
  tap(context, Tap::kLatent, layer, latent);
  tap(context, Tap::kRopeKey, layer, rope_key);
}

// Query latent -> queries of attention (and of the indexer before their rotation).
void project_up(const AttentionContext& context, const PackedLayer& weights) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const int64_t n = context.rows.num_rows();
  const Columns columns(config);
  const auto eps = static_cast<float>(config.latent_norm_eps);
  const auto query = slice(ws.down, n, 0, config.q_lora_rank);
  launch_rms_norm({query, weights.q_a_norm.data(), eps, query}, context.stream());
  const int64_t up_width =
      columns.index_query +
      (weights.has_indexer ? int64_t{config.index_num_heads} * config.index_dim : 0);
  launch_gemm({weights.up.get(), query, slice(ws.up, n, 0, up_width)}, context.stream());
  TensorView<float, 3> heads =
      split_heads(slice(ws.up, n, 0, columns.index_query), config.num_heads, config.qk_head_dim());
  heads.data += config.qk_nope_dim;
  heads.sizes[2] = config.qk_rope_dim;
  rotate(context, heads, RopePairing::kInterleaved);
}

TensorView<float, 3> index_queries(const AttentionContext& context) {
  const TargetConfig& config = context.config;
  return split_heads(slice(context.ws.up, context.rows.num_rows(), Columns(config).index_query,
                           int64_t{config.index_num_heads} * config.index_dim),
                     config.index_num_heads, config.index_dim);
}

RopePairing index_pairing(const TargetConfig& config) {
  return config.indexer_rope_interleaved ? RopePairing::kInterleaved : RopePairing::kHalfSplit;
}

// Index keys of the step's tokens into both tiers.
void append_index_keys(const AttentionContext& context, const PackedLayer& weights, int layer) {
  const TargetConfig& config = context.config;
  const auto key =
      slice(context.ws.down, context.rows.num_rows(), Columns(config).index_key, config.index_dim);
  launch_layer_norm({key, weights.key_norm_weight.data(), weights.key_norm_bias.data(), 1e-6f, key},
                    context.stream());
  rotate(context, as_one_head(key), index_pairing(config));
  tap(context, Tap::kIndexKey, layer, key);
  context.kv.append_index_keys(index_group_of_layer(config, layer), key);
}

void append_rows(const AttentionContext& context, int layer) {
  const TargetConfig& config = context.config;
  const int64_t n = context.rows.num_rows();
  const Columns columns(config);
  context.kv.append_rows(layer, slice(context.ws.down, n, columns.kv_latent, config.kv_lora_rank),
                         slice(context.ws.down, n, columns.kv_rope, config.qk_rope_dim));
}

// Index queries and head weights ready to score.
void prepare_index_queries(const AttentionContext& context, const PackedLayer& weights, int layer) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const int64_t n = context.rows.num_rows();
  const TensorView<float, 3> queries = index_queries(context);
  rotate(context, queries, index_pairing(config));
  tap(context, Tap::kIndexQuery, layer,
      slice(ws.up, n, Columns(config).index_query, queries.sizes[1] * queries.sizes[2]));
  launch_gemm(
      {weights.head_weights.get(), first_rows(ws.normed, n), first_rows(ws.head_weights, n)},
      context.stream());
}

// Scores and top-k, a tile of query rows at a time: scores of a long context are large.
void select_rows(const AttentionContext& context, int layer) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const KvStore& kv = context.kv;
  const int group = index_group_of_layer(config, layer);
  const TensorView<float, 3> queries = index_queries(context);
  const int64_t num_rows = context.rows.num_rows();
  // The head weights' factor num_heads^-0.5 is positive, so it may move inside the ReLU.
  const double scale = 1.0 / std::sqrt(double{1} * config.index_dim * config.index_num_heads);
  for (int64_t row = 0; row < num_rows; row += kScoreTileRows) {
    const int64_t n = std::min(kScoreTileRows, num_rows - row);
    const auto visible = view<const int32_t>(kv.visible().data + row, n);
    const auto scores = first_rows(ws.scores, n);
    launch_index_score(
        {.layout = kv.layout().index_key,
         .pages = kv.index_items(),
         .group_offset = kv.geometry().groups[group].page_offset,
         .item_table = context.rows.item_table,
         .q = {queries.row(row),
               {n, queries.sizes[1], queries.sizes[2]},
               {queries.strides[0], queries.strides[1], 1}},
         .head_weights = {ws.head_weights.row(row),
                          {n, config.index_num_heads},
                          {ws.head_weights.strides[0], 1}},
         .sequence_of_row = view<const int32_t>(context.rows.sequence_of_row.data + row, n),
         .visible = visible,
         .softmax_scale = static_cast<float>(scale),
         .scores = scores},
        context.stream());
    if (context.taps != nullptr) {
      context.device.synchronize();
      context.taps->on_scores(layer, row, scores);
    }
    launch_top_k({scores, visible, view(ws.selection.row(row), n, ws.selection.sizes[1])},
                 context.stream());
  }
  const auto selection = first_rows(ws.selection, num_rows);
  if (context.taps != nullptr) {
    context.device.synchronize();
    context.taps->on_selection(layer, selection);
  }
  context.kv.select(group, selection);
}

void attend(const AttentionContext& context, const PackedLayer& weights, int layer) {
  const TargetConfig& config = context.config;
  Workspace& ws = context.ws;
  const int64_t n = context.rows.num_rows();
  const TensorView<float, 3> heads = split_heads(slice(ws.up, n, 0, Columns(config).index_query),
                                                 config.num_heads, config.qk_head_dim());
  TensorView<float, 3> nope = heads;
  nope.sizes[2] = config.qk_nope_dim;
  const auto query_latent =
      split_heads(first_rows(ws.query_latent, n), config.num_heads, config.kv_lora_rank);
  const auto attended =
      split_heads(first_rows(ws.attended, n), config.num_heads, config.kv_lora_rank);
  launch_head_gemm({.weights = weights.absorb_key.get(), .a = nope, .out = query_latent},
                   context.stream());

  for (int tile = 0; tile < context.kv.num_tiles(); ++tile) {
    const SelectedRows selected = context.kv.selected(layer, tile);
    const int64_t first = selected.first_row;
    const int64_t num_rows = selected.slots.sizes[0];
    auto rows_of = [&](const TensorView<float, 3>& x, int64_t offset, int64_t width) {
      return TensorView<float, 3>{
          x.row(first) + offset, {num_rows, x.sizes[1], width}, {x.strides[0], x.strides[1], 1}};
    };
    launch_sparse_attention({.layout = context.kv.layout().row,
                             .records = selected.records,
                             .row_offset = selected.row_offset,
                             .q_latent = rows_of(query_latent, 0, config.kv_lora_rank),
                             .q_rope = rows_of(heads, config.qk_nope_dim, config.qk_rope_dim),
                             .slots = selected.slots,
                             .softmax_scale = static_cast<float>(config.softmax_scale),
                             .fetch = {selected.miss_of, selected.orders, selected.host},
                             .out = rows_of(attended, 0, config.kv_lora_rank)},
                            context.stream());
  }
  launch_head_gemm(
      {.weights = weights.absorb_value.get(),
       .a = attended,
       .out = split_heads(first_rows(ws.values, n), config.num_heads, config.v_head_dim)},
      context.stream());
  const auto out = first_rows(ws.sublayer_out, n);
  launch_gemm({weights.output.get(), first_rows(ws.values, n), out}, context.stream());
  if (context.summing != nullptr) {
    context.summing->all_reduce_sum(out.data, n * out.sizes[1], context.stream());
  }
  tap(context, Tap::kAttentionOut, layer, out);
}

}  // namespace

void run_attention(const AttentionContext& context, const PackedLayer& weights, int layer) {
  const bool is_given = context.given_selection.data != nullptr;
  project_down(context, weights, layer);
  project_up(context, weights);
  if (weights.has_indexer && !is_given) {
    append_index_keys(context, weights, layer);
    prepare_index_queries(context, weights, layer);
  }
  append_rows(context, layer);
  if (is_given) {
    context.kv.select(index_group_of_layer(context.config, layer), context.given_selection);
  } else if (weights.has_indexer) {
    select_rows(context, layer);
  }
  attend(context, weights, layer);
}

void append_context(const AttentionContext& context, const PackedLayer& weights, int layer) {
  project_down(context, weights, layer);
  if (weights.has_indexer) append_index_keys(context, weights, layer);
  append_rows(context, layer);
}

}  // namespace dhs
