#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <set>
#include <span>
#include <string_view>

#include "dhisparse/base.h"

namespace dhs {
namespace {

constexpr std::string_view kLayerPrefix = "model.layers.";

// The N of "model.layers.N.", or nullopt.
std::optional<int> layer_of_tensor(std::string_view name) {
  if (name.substr(0, kLayerPrefix.size()) != kLayerPrefix) return std::nullopt;
  name.remove_prefix(kLayerPrefix.size());
  const size_t num_digits = name.find('.');
  if (num_digits == 0 || num_digits > 6) return std::nullopt;  // npos is above 6 too
  int layer = 0;
  for (char c : name.substr(0, num_digits)) {
    if (c < '0' || c > '9') return std::nullopt;
    layer = layer * 10 + (c - '0');
  }
  return layer;
}

class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, const TargetConfig& config)
      : reader_(checkpoint, config.quantization), config_(config) {}

  absl::StatusOr<TargetWeights> load();
  absl::StatusOr<MtpWeights> load_mtp(const Checkpoint& target);

 private:
  // Whether the tensor holds the same bytes as the target's `original`, or the embedding where the
  // target has none of that name.
  bool is_copy(const std::string& name, const Checkpoint& target, const char* original) const;
  LayerWeights load_layer(int layer);
  IndexerWeights load_indexer(const std::string& prefix);
  MoeWeights load_moe(const std::string& prefix);
  MlpWeights load_mlp(const std::string& prefix, int64_t intermediate_dim);
  WeightMatrix load_lm_head(const WeightMatrix& embedding);
  void account_for_other_tensors();
  std::string why_unexpected(std::string_view name) const;

  WeightMatrix matrix(std::string name, int64_t rows, int64_t columns) {
    return reader_.matrix(std::move(name), rows, columns);
  }
  std::vector<float> vector(const std::string& name, int64_t size) {
    return reader_.vector(name, size);
  }

  TensorReader reader_;
  const TargetConfig& config_;
};

absl::StatusOr<TargetWeights> WeightLoader::load() {
  TargetWeights weights;
  weights.embedding = matrix("model.embed_tokens.weight", config_.vocab_size, config_.hidden_dim);
  weights.final_norm = vector("model.norm.weight", config_.hidden_dim);
  weights.lm_head = load_lm_head(weights.embedding);
  weights.layers.reserve(config_.num_layers);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    weights.layers.push_back(load_layer(layer));
  }
  account_for_other_tensors();
  DHS_RETURN_IF_ERROR(reader_.status());
  return weights;
}

WeightMatrix WeightLoader::load_lm_head(const WeightMatrix& embedding) {
  const std::string name = "lm_head.weight";
  if (!config_.tie_word_embeddings) return matrix(name, config_.vocab_size, config_.hidden_dim);
  const std::optional<TensorBytes> stored = reader_.checkpoint().find(name);
  if (!stored) return embedding;
  // Some writers store the tied matrix twice. Two different ones leave open which is meant.
  reader_.mark_used(name);
  if (stored->dtype != embedding.dtype || stored->bytes != embedding.stored_bytes() ||
      std::memcmp(stored->data, embedding.data, stored->bytes) != 0) {
    reader_.error(name,
                  "differs from model.embed_tokens.weight, but config.json ties the two "
                  "(tie_word_embeddings)");
  }
  return embedding;
}

LayerWeights WeightLoader::load_layer(int layer) {
  const TargetConfig& c = config_;
  const std::string prefix = absl::StrCat(to_absl(kLayerPrefix), layer, ".");
  const std::string attention = prefix + "self_attn.";
  const int64_t heads = c.num_heads;
  LayerWeights weights;
  weights.input_norm = vector(prefix + "input_layernorm.weight", c.hidden_dim);
  weights.post_attention_norm = vector(prefix + "post_attention_layernorm.weight", c.hidden_dim);
  weights.q_a = matrix(attention + "q_a_proj.weight", c.q_lora_rank, c.hidden_dim);
  weights.q_a_norm = vector(attention + "q_a_layernorm.weight", c.q_lora_rank);
  weights.q_b = matrix(attention + "q_b_proj.weight", heads * c.qk_head_dim(), c.q_lora_rank);
  weights.kv_a = matrix(attention + "kv_a_proj_with_mqa.weight", c.latent_row_dim(), c.hidden_dim);
  weights.kv_a_norm = vector(attention + "kv_a_layernorm.weight", c.kv_lora_rank);
  weights.kv_b = matrix(attention + "kv_b_proj.weight", heads * (c.qk_nope_dim + c.v_head_dim),
                        c.kv_lora_rank);
  weights.o = matrix(attention + "o_proj.weight", c.hidden_dim, heads * c.v_head_dim);
  if (layer_has_indexer(c, layer)) weights.indexer = load_indexer(attention + "indexer.");
  if (c.is_dense_layer(layer)) {
    weights.dense = load_mlp(prefix + "mlp.", c.dense_intermediate_dim);
  } else {
    weights.moe = load_moe(prefix + "mlp.");
  }
  return weights;
}

IndexerWeights WeightLoader::load_indexer(const std::string& prefix) {
  const TargetConfig& c = config_;
  IndexerWeights weights;
  weights.query =
      matrix(prefix + "wq_b.weight", int64_t{c.index_num_heads} * c.index_dim, c.q_lora_rank);
  weights.key = matrix(prefix + "wk.weight", c.index_dim, c.hidden_dim);
  weights.head_weights = matrix(prefix + "weights_proj.weight", c.index_num_heads, c.hidden_dim);
  weights.key_norm_weight = vector(prefix + "k_norm.weight", c.index_dim);
  weights.key_norm_bias = vector(prefix + "k_norm.bias", c.index_dim);
  return weights;
}

MlpWeights WeightLoader::load_mlp(const std::string& prefix, int64_t intermediate_dim) {
  MlpWeights weights;
  weights.gate = matrix(prefix + "gate_proj.weight", intermediate_dim, config_.hidden_dim);
  weights.up = matrix(prefix + "up_proj.weight", intermediate_dim, config_.hidden_dim);
  weights.down = matrix(prefix + "down_proj.weight", config_.hidden_dim, intermediate_dim);
  return weights;
}

MoeWeights WeightLoader::load_moe(const std::string& prefix) {
  const TargetConfig& c = config_;
  MoeWeights weights;
  weights.router = matrix(prefix + "gate.weight", c.num_experts, c.hidden_dim);
  weights.choice_bias = vector(prefix + "gate.e_score_correction_bias", c.num_experts);
  weights.experts.reserve(c.num_experts);
  for (int expert = 0; expert < c.num_experts; ++expert) {
    weights.experts.push_back(
        load_mlp(absl::StrCat(prefix, "experts.", expert, "."), c.moe_intermediate_dim));
  }
  if (c.num_shared_experts > 0) {
    weights.shared_expert = load_mlp(prefix + "shared_experts.",
                                     int64_t{c.num_shared_experts} * c.moe_intermediate_dim);
  }
  return weights;
}

// Every tensor must be used or known to be of no use to the trunk: one that is silently left out
// would mean that the model is not the one we think it is.
void WeightLoader::account_for_other_tensors() {
  // One layer more than config.json admits: some files say 0 to switch drafting off, and keep it.
  const int mtp_end = config_.num_layers + std::max(config_.num_mtp_layers, 1);
  size_t num_mtp_tensors = 0;
  for (std::string_view name : reader_.unused()) {
    const std::optional<int> layer = layer_of_tensor(name);
    if (layer && *layer >= config_.num_layers && *layer < mtp_end) {
      ++num_mtp_tensors;
      continue;
    }
    // Recomputed from rope_theta; old writers stored them.
    constexpr std::string_view kFrequencies = ".rotary_emb.inv_freq";
    if (name.size() > kFrequencies.size() &&
        name.substr(name.size() - kFrequencies.size()) == kFrequencies) {
      continue;
    }
    reader_.error(to_absl(name), why_unexpected(name));
  }
  if (num_mtp_tensors > 0) {
    log_info("skipped ", num_mtp_tensors, " tensors of the multi-token prediction layers from ",
             config_.num_layers, " on");
  }
}

std::string WeightLoader::why_unexpected(std::string_view name) const {
  const std::optional<int> layer = layer_of_tensor(name);
  if (layer && *layer >= config_.num_layers) {
    return absl::StrCat("layer ", *layer, " is beyond num_hidden_layers ", config_.num_layers,
                        " and num_nextn_predict_layers ", config_.num_mtp_layers,
                        " of config.json");
  }
  if (layer && name.find(".indexer.") != std::string_view::npos &&
      !layer_has_indexer(config_, *layer)) {
    const IndexGroup& group = config_.index_groups[index_group_of_layer(config_, *layer)];
    return absl::StrCat("layer ", *layer, " shares the selection of layer ", group.first_layer,
                        " and must not have an indexer; see indexer_types in config.json");
  }
  return "unexpected tensor; config.json describes no use for it";
}

bool WeightLoader::is_copy(const std::string& name, const Checkpoint& target,
                           const char* original) const {
  const auto copy = reader_.checkpoint().find(name);
  auto source = target.find(original);
  if (!source.has_value()) source = target.find("model.embed_tokens.weight");  // tied
  return copy.has_value() && source.has_value() && copy->dtype == source->dtype &&
         copy->bytes == source->bytes && std::memcmp(copy->data, source->data, copy->bytes) == 0;
}

absl::StatusOr<MtpWeights> WeightLoader::load_mtp(const Checkpoint& target) {
  const int layer = config_.num_layers - 1;
  const int64_t hidden = config_.hidden_dim;
  const std::string prefix = absl::StrCat(to_absl(kLayerPrefix), layer, ".");
  MtpWeights weights;
  weights.embedding_norm = vector(prefix + "enorm.weight", hidden);
  weights.hidden_norm = vector(prefix + "hnorm.weight", hidden);
  weights.projection = matrix(prefix + "eh_proj.weight", hidden, 2 * hidden);
  weights.layer = load_layer(layer);
  weights.final_norm = vector(prefix + "shared_head.norm.weight", hidden);
  const std::string head = prefix + "shared_head.head.weight";
  if (reader_.has(head) && !is_copy(head, target, "lm_head.weight")) {
    weights.head = matrix(head, config_.vocab_size, hidden);
  }
  reader_.mark_used(head);
  const std::string embedding = prefix + "embed_tokens.weight";
  if (reader_.has(embedding) && !is_copy(embedding, target, "model.embed_tokens.weight")) {
    reader_.error(embedding,
                  "differs from the target's embedding; an MTP layer with one of its "
                  "own is not supported");
  }
  reader_.mark_used(embedding);
  for (std::string_view name : reader_.unused()) {
    const std::optional<int> other = layer_of_tensor(name);
    if (other != layer) continue;
    reader_.error(to_absl(name), "unexpected tensor of the MTP layer");
  }
  DHS_RETURN_IF_ERROR(reader_.status());
  return weights;
}

}  // namespace

absl::StatusOr<MtpWeights> load_mtp_weights(const Checkpoint& checkpoint,
                                            const TargetConfig& config, const Checkpoint& target) {
  return WeightLoader(checkpoint, config).load_mtp(target);
}

absl::StatusOr<TargetWeights> load_target_weights(const Checkpoint& checkpoint,
                                                  const TargetConfig& config) {
  return WeightLoader(checkpoint, config).load();
}

}  // namespace dhs
