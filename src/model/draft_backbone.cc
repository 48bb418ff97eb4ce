#include "model/draft_backbone.h"

#include <cmath>

#include "kernels/activation/activation.h"
#include "kernels/add/add.h"
#include "kernels/draft_attention/draft_attention.h"
#include "kernels/draft_rows/draft_rows.h"
#include "kernels/embedding/embedding.h"
#include "kernels/grouped_conv/grouped_conv.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "model/workspace.h"

namespace dhs {
namespace {

PackedConv pack_conv(const GroupedConvWeights& weights, Packer& packer) {
  return {.base_kernel = packer.vector(weights.base_kernel),
          .projection = packer.stack({all_rows(weights.projection)})};
}

PackedBlockLayer pack_layer(const BlockLayerWeights& weights, Packer& packer) {
  PackedBlockLayer packed;
  packed.input_norm = packer.vector(weights.input_norm);
  packed.post_attention_norm = packer.vector(weights.post_attention_norm);
  packed.q_norm = packer.vector(weights.q_norm);
  packed.k_norm = packer.vector(weights.k_norm);
  packed.qkv = packer.stack({all_rows(weights.q), all_rows(weights.k), all_rows(weights.v)});
  packed.o = packer.stack({all_rows(weights.o)});
  packed.gate_up = packer.stack({all_rows(weights.gate), all_rows(weights.up)});
  packed.down = packer.stack({all_rows(weights.down)});
  if (weights.attention_conv) packed.attention_conv = pack_conv(*weights.attention_conv, packer);
  if (weights.mlp_conv) packed.mlp_conv = pack_conv(*weights.mlp_conv, packer);
  return packed;
}

}  // namespace

absl::Status DraftBackbone::load(const BlockDraftWeights& weights, const SharedWeights& shared,
                                 WeightUploader& uploader, const DraftOptions& options) {
  shared_ = shared;
  Packer packer(uploader, shared.precision, GemmProvider::kOwn);
  fc_ = packer.stack({all_rows(weights.fc)});
  hidden_norm_ = packer.vector(weights.hidden_norm);
  norm_ = packer.vector(weights.norm);
  std::vector<MatrixRows> context;
  for (const BlockLayerWeights& layer : weights.layers) {
    context.push_back(all_rows(layer.k));
    context.push_back(all_rows(layer.v));
    layers_.push_back(pack_layer(layer, packer));
  }
  context_ = packer.stack(context);
  DHS_RETURN_IF_ERROR(packer.status());
  const std::vector<double> frequencies =
      rope_frequencies(config_.head_dim, config_.rope_theta, nullptr);
  DHS_ASSIGN_OR_RETURN(
      rope_frequencies_.memory,
      uploader.upload(frequencies.data(), std::ssize(frequencies) * int64_t{sizeof(double)}));
  return reserve(options);
}

absl::Status DraftBackbone::reserve(const DraftOptions& options) {
  const int64_t rows = options.max_blocks * config_.block_rows;
  const int64_t query_width = int64_t{config_.num_heads} * config_.head_dim;
  const bool has_conv = config_.conv_taps > 0;
  auto lay_out = [&](ArenaCarver& carver) {
    auto take = [&](int64_t r, int64_t columns) {
      return view(carver.take<float>(r * columns).data, r, columns);
    };
    ws_.features = take(options.max_query_rows, config_.hidden_dim);
    ws_.kv = take(options.max_query_rows, 2 * config_.num_layers * config_.kv_width());
    ws_.tokens = carver.take<int32_t>(rows);
    ws_.positions = carver.take<int32_t>(rows);
    for (auto* tensor : {&ws_.x, &ws_.a, &ws_.out, &ws_.y})
      *tensor = take(rows, config_.hidden_dim);
    for (auto* tensor : {&ws_.z, &ws_.mixed})
      *tensor = take(has_conv ? rows : 0, config_.hidden_dim);
    ws_.delta = take(has_conv ? rows : 0, has_conv ? 2 * config_.conv_taps * num_groups() : 0);
    ws_.qkv = take(rows, query_width + 2 * config_.kv_width());
    ws_.attended = take(rows, query_width);
    ws_.gate_up = take(rows, 2 * config_.intermediate_dim);
    ws_.activated = take(rows, config_.intermediate_dim);
  };
  DHS_ASSIGN_OR_RETURN(ws_.memory, carve(device_, lay_out));
  return absl::OkStatus();
}

void DraftBackbone::rotate(TensorView<float, 3> heads, TensorView<const int32_t, 1> positions) {
  launch_rope({.x = heads,
               .positions = positions,
               .inverse_frequency = rope_frequencies_.data(),
               .rope_dim = config_.head_dim,
               .pairing = RopePairing::kHalfSplit},
              stream());
}

// ---- Context ------------------------------------------------------------------------------------

void DraftBackbone::append(TensorView<const float, 2> taps, TensorView<const int32_t, 1> positions,
                           KvStore& kv) {
  const int64_t n = taps.sizes[0];
  const auto features = first_rows(ws_.features, n);
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  launch_gemm({fc_.get(), taps, features}, stream());
  launch_rms_norm({features, hidden_norm_.data(), eps, features}, stream());
  launch_gemm({context_.get(), features, first_rows(ws_.kv, n)}, stream());
  const int64_t width = config_.kv_width();
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    const auto keys = split_heads(slice(ws_.kv, n, 2 * layer * width, width), config_.num_kv_heads,
                                  config_.head_dim);
    launch_head_norm({keys, layers_[layer].k_norm.data(), eps, keys}, stream());
    rotate(keys, positions);
  }
  kv.append_draft_kv(first_rows(ws_.kv, n));
}

// ---- Block --------------------------------------------------------------------------------------

void DraftBackbone::normalize(const DeviceVector<float>& weight, int64_t n,
                              TensorView<float, 2> out) {
  launch_rms_norm({first_rows(ws_.x, n), weight.data(), static_cast<float>(config_.rms_norm_eps),
                   first_rows(out, n)},
                  stream());
}

TensorView<const float, 2> DraftBackbone::before(const std::optional<PackedConv>& conv, int64_t n) {
  const auto a = first_rows(ws_.a, n);
  if (!conv.has_value()) return a;
  launch_gemm({conv->projection.get(), a, first_rows(ws_.delta, n)}, stream());
  const int64_t width = config_.conv_taps * num_groups();
  launch_grouped_conv({.x = a,
                       .base_kernel = conv->base_kernel.data(),
                       .delta = slice(ws_.delta, n, 0, width),
                       .num_taps = config_.conv_taps,
                       .group_channels = config_.conv_group_channels,
                       .block_rows = config_.block_rows,
                       .out = first_rows(ws_.z, n)},
                      stream());
  return first_rows(ws_.z, n);
}

TensorView<const float, 2> DraftBackbone::after(const std::optional<PackedConv>& conv, int64_t n) {
  const auto out = first_rows(ws_.out, n);
  if (!conv.has_value()) return out;
  const int64_t width = config_.conv_taps * num_groups();
  launch_grouped_conv(
      {.x = out,
       .base_kernel = conv->base_kernel.data() + int64_t{config_.conv_taps} * config_.hidden_dim,
       .delta = slice(ws_.delta, n, width, width),
       .num_taps = config_.conv_taps,
       .group_channels = config_.conv_group_channels,
       .block_rows = config_.block_rows,
       .out = first_rows(ws_.mixed, n)},
      stream());
  return first_rows(ws_.mixed, n);
}

// ws.qkv -> ws.attended.
void DraftBackbone::attend(const DraftBlocks& blocks, KvStore& kv, int layer, int64_t n) {
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const int64_t query_width = int64_t{config_.num_heads} * config_.head_dim;
  const int64_t width = config_.kv_width();
  const auto q =
      split_heads(slice(ws_.qkv, n, 0, query_width), config_.num_heads, config_.head_dim);
  const auto k =
      split_heads(slice(ws_.qkv, n, query_width, width), config_.num_kv_heads, config_.head_dim);
  const auto v = split_heads(slice(ws_.qkv, n, query_width + width, width), config_.num_kv_heads,
                             config_.head_dim);
  const auto positions = view<const int32_t>(ws_.positions.data, n);
  launch_head_norm({q, layers_[layer].q_norm.data(), eps, q}, stream());
  launch_head_norm({k, layers_[layer].k_norm.data(), eps, k}, stream());
  rotate(q, positions);
  rotate(k, positions);
  const BlockLayerMask& mask = config_.masks[layer];
  launch_draft_attention(
      {.layout = kv.layout().draft_page,
       .layer = layer,
       .pages = kv.draft_pages(),
       .page_table = kv.page_table(),
       .sequence_of_block = blocks.sequence_of_block,
       .first_position = blocks.anchor_positions,
       .block_rows = config_.block_rows,
       .is_causal = mask.is_causal,
       .window = mask.window,
       .softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
       .q = q,
       .k = k,
       .v = v,
       .out = split_heads(first_rows(ws_.attended, n), config_.num_heads, config_.head_dim)},
      stream());
}

void DraftBackbone::run_mlp(const PackedBlockLayer& layer, int64_t n) {
  const auto in = before(layer.mlp_conv, n);
  launch_gemm({layer.gate_up.get(), in, first_rows(ws_.gate_up, n)}, stream());
  launch_swiglu({first_rows(ws_.gate_up, n), first_rows(ws_.activated, n)}, stream());
  launch_gemm({layer.down.get(), first_rows(ws_.activated, n), first_rows(ws_.out, n)}, stream());
  launch_add({after(layer.mlp_conv, n), first_rows(ws_.x, n)}, stream());
}

TensorView<const float, 2> DraftBackbone::run(const DraftBlocks& blocks, KvStore& kv) {
  const int64_t n = blocks.num_blocks() * config_.block_rows;
  launch_draft_rows({.anchors = blocks.anchors,
                     .anchor_positions = blocks.anchor_positions,
                     .block_rows = config_.block_rows,
                     .mask_token = config_.mask_token,
                     .tokens = view(ws_.tokens.data, n),
                     .positions = view(ws_.positions.data, n)},
                    stream());
  launch_embedding({.dtype = shared_.embedding_dtype,
                    .table = shared_.embedding,
                    .tokens = view<const int32_t>(ws_.tokens.data, n),
                    .positions = view<const int32_t>(ws_.positions.data, n),
                    .out = first_rows(ws_.x, n)},
                   stream());
  for (int i = 0; i < config_.num_layers; ++i) {
    const PackedBlockLayer& layer = layers_[i];
    normalize(layer.input_norm, n, ws_.a);
    launch_gemm({layer.qkv.get(), before(layer.attention_conv, n), first_rows(ws_.qkv, n)},
                stream());
    attend(blocks, kv, i, n);
    launch_gemm({layer.o.get(), first_rows(ws_.attended, n), first_rows(ws_.out, n)}, stream());
    launch_add({after(layer.attention_conv, n), first_rows(ws_.x, n)}, stream());
    normalize(layer.post_attention_norm, n, ws_.a);
    run_mlp(layer, n);
  }
  normalize(norm_, n, ws_.y);
  return first_rows(ws_.y, n);
}

}  // namespace dhs
