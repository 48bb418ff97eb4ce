#include "model/block_draft_weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace dhs {
namespace {

// A prefix that some writers use in place of another.
struct Alias {
  std::string_view name;
  std::string_view instead;
};
constexpr Alias kAliases[] = {
    {"fc.", "encoder.fc."},
    {"hidden_norm.", "encoder.output_norm_enc."},
    {"layers.0.", "midlayer."},
    {"markov_head.", ""},
};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

class BlockDraftLoader {
 public:
  BlockDraftLoader(const Checkpoint& checkpoint, const BlockDraftConfig& config,
                   const Checkpoint& target)
      : reader_(checkpoint, WeightQuantization::kNone), config_(config), target_(target) {}

  absl::StatusOr<BlockDraftWeights> load();

 private:
  BlockLayerWeights load_layer(int layer);
  GroupedConvWeights load_conv(const std::string& prefix);
  SelectorWeights load_selector();
  MarkovWeights load_markov();
  ConfidenceWeights load_confidence();
  void skip_copies_of_target();

  // The name that the checkpoint has the tensor under; as given when it has none.
  std::string stored(const std::string& name) const;
  WeightMatrix matrix(const std::string& name, int64_t rows, int64_t columns) {
    return reader_.matrix(stored(name), rows, columns);
  }
  std::vector<float> vector(const std::string& name, int64_t size) {
    return reader_.vector(stored(name), size);
  }

  TensorReader reader_;
  const BlockDraftConfig& config_;
  const Checkpoint& target_;
};

std::string BlockDraftLoader::stored(const std::string& name) const {
  std::vector<std::string> candidates = {name};
  for (const Alias& alias : kAliases) {
    if (!starts_with(name, alias.name)) continue;
    candidates.push_back(std::string(alias.instead) + name.substr(alias.name.size()));
  }
  for (const std::string& candidate : candidates) {
    for (const char* prefix : {"", "model."}) {
      const std::string whole = prefix + candidate;
      if (reader_.has(whole)) return whole;
    }
  }
  return name;
}

absl::StatusOr<BlockDraftWeights> BlockDraftLoader::load() {
  BlockDraftWeights weights;
  const int64_t tapped = std::ssize(config_.target_layers) * config_.target_hidden_dim;
  weights.fc = matrix("fc.weight", config_.hidden_dim, tapped);
  weights.hidden_norm = vector("hidden_norm.weight", config_.hidden_dim);
  weights.norm = vector("norm.weight", config_.hidden_dim);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    weights.layers.push_back(load_layer(layer));
  }
  if (config_.family == BlockDraftFamily::kDflash2) weights.selector = load_selector();
  if (config_.markov != MarkovKind::kNone) weights.markov = load_markov();
  if (config_.has_confidence) weights.confidence = load_confidence();
  skip_copies_of_target();
  for (std::string_view name : reader_.unused()) {
    reader_.error(to_absl(name), "unexpected tensor; config.json describes no use for it");
  }
  DHS_RETURN_IF_ERROR(reader_.status());
  return weights;
}

BlockLayerWeights BlockDraftLoader::load_layer(int layer) {
  const BlockDraftConfig& c = config_;
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  const int64_t query_width = int64_t{c.num_heads} * c.head_dim;
  BlockLayerWeights weights;
  weights.input_norm = vector(prefix + "input_layernorm.weight", c.hidden_dim);
  weights.post_attention_norm = vector(prefix + "post_attention_layernorm.weight", c.hidden_dim);
  weights.q = matrix(attention + "q_proj.weight", query_width, c.hidden_dim);
  weights.k = matrix(attention + "k_proj.weight", c.kv_width(), c.hidden_dim);
  weights.v = matrix(attention + "v_proj.weight", c.kv_width(), c.hidden_dim);
  weights.o = matrix(attention + "o_proj.weight", c.hidden_dim, query_width);
  weights.q_norm = vector(attention + "q_norm.weight", c.head_dim);
  weights.k_norm = vector(attention + "k_norm.weight", c.head_dim);
  weights.gate = matrix(prefix + "mlp.gate_proj.weight", c.intermediate_dim, c.hidden_dim);
  weights.up = matrix(prefix + "mlp.up_proj.weight", c.intermediate_dim, c.hidden_dim);
  weights.down = matrix(prefix + "mlp.down_proj.weight", c.hidden_dim, c.intermediate_dim);
  if (c.family == BlockDraftFamily::kDflash2) {
    weights.attention_conv = load_conv(prefix + "attention_conv.");
    weights.mlp_conv = load_conv(prefix + "mlp_conv.");
  }
  return weights;
}

GroupedConvWeights BlockDraftLoader::load_conv(const std::string& prefix) {
  const BlockDraftConfig& c = config_;
  GroupedConvWeights weights;
  const std::string base = stored(prefix + "base_kernel");
  if (const auto tensor = reader_.find(base, {2, c.conv_taps, c.hidden_dim})) {
    weights.base_kernel = reader_.finite_values(base, *tensor);
  }
  const int64_t num_groups = c.hidden_dim / c.conv_group_channels;
  weights.projection =
      matrix(prefix + "kernel_projection.weight", 2 * c.conv_taps * num_groups, c.hidden_dim);
  return weights;
}

SelectorWeights BlockDraftLoader::load_selector() {
  const BlockDraftConfig& c = config_;
  const std::string prefix = "candidate_selector.";
  return {.hidden_projection =
              matrix(prefix + "hidden_projection.weight", c.selector_rank, c.hidden_dim),
          .predecessors = matrix(prefix + "predecessor_codebook", c.vocab_size, c.selector_rank),
          .successors = matrix(prefix + "successor_codebook", c.vocab_size, c.selector_rank)};
}

MarkovWeights BlockDraftLoader::load_markov() {
  const BlockDraftConfig& c = config_;
  const int64_t rank = c.markov_rank;
  const std::string prefix = "markov_head.";
  MarkovWeights weights;
  weights.w1 = matrix(prefix + "markov_w1.weight", c.vocab_size, rank);
  weights.w2 = matrix(prefix + "markov_w2.weight", c.vocab_size, rank);
  if (c.markov == MarkovKind::kGated) {
    weights.gate = matrix(prefix + "gate_proj.weight", rank, c.hidden_dim + rank);
    weights.gate_bias = vector(prefix + "gate_proj.bias", rank);
  }
  if (c.markov == MarkovKind::kRnn) {
    weights.gate = matrix(prefix + "joint_proj.weight", 3 * rank, 2 * rank + c.hidden_dim);
    weights.gate_bias = vector(prefix + "joint_proj.bias", 3 * rank);
  }
  return weights;
}

ConfidenceWeights BlockDraftLoader::load_confidence() {
  const int64_t width =
      config_.hidden_dim + (config_.confidence_sees_markov ? config_.markov_rank : 0);
  const std::string name = stored("confidence_head.proj.weight");
  ConfidenceWeights weights;
  if (const auto tensor = reader_.find(name, {1, width})) {
    weights.weight = reader_.finite_values(name, *tensor);
  }
  const std::string bias = stored("confidence_head.proj.bias");
  if (!reader_.has(bias)) return weights;
  const std::vector<float> values = reader_.vector(bias, 1);
  if (!values.empty()) weights.bias = values.front();
  return weights;
}

// Frozen during training, so that some writers store them once more.
void BlockDraftLoader::skip_copies_of_target() {
  constexpr std::pair<const char*, const char*> kCopies[] = {
      {"embed_tokens.weight", "model.embed_tokens.weight"}, {"lm_head.weight", "lm_head.weight"}};
  for (const auto& [copy, original] : kCopies) {
    const std::string name = stored(copy);
    const auto tensor = reader_.checkpoint().find(name);
    if (!tensor.has_value()) continue;
    reader_.mark_used(name);
    auto source = target_.find(original);
    if (!source.has_value()) source = target_.find("model.embed_tokens.weight");  // tied
    if (source.has_value() && source->dtype == tensor->dtype && source->bytes == tensor->bytes &&
        std::memcmp(source->data, tensor->data, tensor->bytes) == 0) {
      continue;
    }
    reader_.error(name,
                  "differs from the target's; drafts with an embedding or a head of their "
                  "own are not supported, or this one was made for another target");
  }
}

}  // namespace

absl::StatusOr<BlockDraftWeights> load_block_draft_weights(const Checkpoint& checkpoint,
                                                           const BlockDraftConfig& config,
                                                           const Checkpoint& target) {
  return BlockDraftLoader(checkpoint, config, target).load();
}

}  // namespace dhs
