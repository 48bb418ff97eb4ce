#include "model/block_draft_tensors.h"

#include "dhisparse/base.h"

namespace dhs {
namespace {

using Tensors = std::vector<DraftTensor>;

void add_conv(const BlockDraftConfig& c, const std::string& prefix, Tensors& tensors) {
  const int64_t num_groups = c.hidden_dim / c.conv_group_channels;
  tensors.push_back({prefix + "base_kernel", {2, c.conv_taps, c.hidden_dim}});
  tensors.push_back(
      {prefix + "kernel_projection.weight", {2 * c.conv_taps * num_groups, c.hidden_dim}});
}

void add_layer(const BlockDraftConfig& c, int layer, Tensors& tensors) {
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  const int64_t query_width = int64_t{c.num_heads} * c.head_dim;
  tensors.push_back({prefix + "input_layernorm.weight", {c.hidden_dim}});
  tensors.push_back({prefix + "post_attention_layernorm.weight", {c.hidden_dim}});
  tensors.push_back({attention + "q_proj.weight", {query_width, c.hidden_dim}});
  tensors.push_back({attention + "k_proj.weight", {c.kv_width(), c.hidden_dim}});
  tensors.push_back({attention + "v_proj.weight", {c.kv_width(), c.hidden_dim}});
  tensors.push_back({attention + "o_proj.weight", {c.hidden_dim, query_width}});
  tensors.push_back({attention + "q_norm.weight", {c.head_dim}});
  tensors.push_back({attention + "k_norm.weight", {c.head_dim}});
  tensors.push_back({prefix + "mlp.gate_proj.weight", {c.intermediate_dim, c.hidden_dim}});
  tensors.push_back({prefix + "mlp.up_proj.weight", {c.intermediate_dim, c.hidden_dim}});
  tensors.push_back({prefix + "mlp.down_proj.weight", {c.hidden_dim, c.intermediate_dim}});
  if (c.family != BlockDraftFamily::kDflash2) return;
  add_conv(c, prefix + "attention_conv.", tensors);
  add_conv(c, prefix + "mlp_conv.", tensors);
}

void add_selector(const BlockDraftConfig& c, Tensors& tensors) {
  const std::string prefix = "candidate_selector.";
  tensors.push_back({prefix + "hidden_projection.weight", {c.selector_rank, c.hidden_dim}});
  tensors.push_back({prefix + "predecessor_codebook", {c.vocab_size, c.selector_rank}});
  tensors.push_back({prefix + "successor_codebook", {c.vocab_size, c.selector_rank}});
}

void add_markov(const BlockDraftConfig& c, Tensors& tensors) {
  const int64_t rank = c.markov_rank;
  const std::string prefix = "markov_head.";
  tensors.push_back({prefix + "markov_w1.weight", {c.vocab_size, rank}});
  tensors.push_back({prefix + "markov_w2.weight", {c.vocab_size, rank}});
  if (c.markov == MarkovKind::kGated) {
    tensors.push_back({prefix + "gate_proj.weight", {rank, c.hidden_dim + rank}});
    tensors.push_back({prefix + "gate_proj.bias", {rank}});
  }
  if (c.markov == MarkovKind::kRnn) {
    tensors.push_back({prefix + "joint_proj.weight", {3 * rank, 2 * rank + c.hidden_dim}});
    tensors.push_back({prefix + "joint_proj.bias", {3 * rank}});
  }
}

}  // namespace

std::vector<DraftTensor> block_draft_tensors(const BlockDraftConfig& config) {
  const BlockDraftConfig& c = config;
  const int64_t tapped = std::ssize(c.target_layers) * c.target_hidden_dim;
  Tensors tensors = {{"fc.weight", {c.hidden_dim, tapped}},
                     {"hidden_norm.weight", {c.hidden_dim}},
                     {"norm.weight", {c.hidden_dim}}};
  for (int layer = 0; layer < c.num_layers; ++layer) add_layer(c, layer, tensors);
  if (c.family == BlockDraftFamily::kDflash2) add_selector(c, tensors);
  if (c.markov != MarkovKind::kNone) add_markov(c, tensors);
  if (c.has_confidence) {
    const int64_t width = c.hidden_dim + (c.confidence_sees_markov ? c.markov_rank : 0);
    tensors.push_back({"confidence_head.proj.weight", {1, width}});
    tensors.push_back({"confidence_head.proj.bias", {1}, /*is_optional=*/true});
  }
  return tensors;
}

int64_t num_block_draft_parameters(const BlockDraftConfig& config) {
  int64_t total = 0;
  for (const DraftTensor& tensor : block_draft_tensors(config)) {
    int64_t elements = 1;
    for (int64_t size : tensor.shape) elements *= size;
    total += elements;
  }
  return total;
}

}  // namespace dhs
