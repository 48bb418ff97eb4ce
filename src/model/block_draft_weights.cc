#include "model/block_draft_weights.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "model/block_draft_tensors.h"

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
      : reader_(checkpoint, WeightQuantization::kNone), config_(config), target_(target) {
    for (DraftTensor& tensor : block_draft_tensors(config)) {
      shapes_.emplace(std::move(tensor.name), std::move(tensor.shape));
    }
  }

  absl::StatusOr<BlockDraftWeights> load();

 private:
  BlockLayerWeights load_layer(int layer);
  GroupedConvWeights load_conv(const std::string& prefix);
  MarkovWeights load_markov();
  ConfidenceWeights load_confidence();
  void skip_copies_of_target();
  void refuse_mask_embedding_file();

  // The name that the checkpoint has the tensor under; as given when it has none.
  std::string stored(const std::string& name) const;
  const std::vector<int64_t>& shape_of(const std::string& name) const {
    const auto found = shapes_.find(name);
    DHS_CHECK(found != shapes_.end(), name, " is not listed in block_draft_tensors.cc");
    return found->second;
  }
  WeightMatrix matrix(const std::string& name) {
    const std::vector<int64_t>& shape = shape_of(name);
    DHS_CHECK(shape.size() == 2, name, " is no matrix");
    return reader_.matrix(stored(name), shape[0], shape[1]);
  }
  std::vector<float> values(const std::string& name) {
    return reader_.values(stored(name), shape_of(name));
  }

  TensorReader reader_;
  const BlockDraftConfig& config_;
  const Checkpoint& target_;
  std::map<std::string, std::vector<int64_t>> shapes_;  // by canonical name
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
  weights.fc = matrix("fc.weight");
  weights.hidden_norm = values("hidden_norm.weight");
  weights.norm = values("norm.weight");
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    weights.layers.push_back(load_layer(layer));
  }
  if (config_.family == BlockDraftFamily::kDflash2) {
    const std::string prefix = "candidate_selector.";
    weights.selector = {.hidden_projection = matrix(prefix + "hidden_projection.weight"),
                        .predecessors = matrix(prefix + "predecessor_codebook"),
                        .successors = matrix(prefix + "successor_codebook")};
  }
  if (config_.markov != MarkovKind::kNone) weights.markov = load_markov();
  if (config_.has_confidence) weights.confidence = load_confidence();
  skip_copies_of_target();
  refuse_mask_embedding_file();
  for (std::string_view name : reader_.unused()) {
    reader_.error(to_absl(name), "unexpected tensor; config.json describes no use for it");
  }
  DHS_RETURN_IF_ERROR(reader_.status());
  return weights;
}

BlockLayerWeights BlockDraftLoader::load_layer(int layer) {
  const std::string prefix = absl::StrCat("layers.", layer, ".");
  const std::string attention = prefix + "self_attn.";
  BlockLayerWeights weights;
  weights.input_norm = values(prefix + "input_layernorm.weight");
  weights.post_attention_norm = values(prefix + "post_attention_layernorm.weight");
  weights.q = matrix(attention + "q_proj.weight");
  weights.k = matrix(attention + "k_proj.weight");
  weights.v = matrix(attention + "v_proj.weight");
  weights.o = matrix(attention + "o_proj.weight");
  weights.q_norm = values(attention + "q_norm.weight");
  weights.k_norm = values(attention + "k_norm.weight");
  weights.gate = matrix(prefix + "mlp.gate_proj.weight");
  weights.up = matrix(prefix + "mlp.up_proj.weight");
  weights.down = matrix(prefix + "mlp.down_proj.weight");
  if (config_.family == BlockDraftFamily::kDflash2) {
    weights.attention_conv = load_conv(prefix + "attention_conv.");
    weights.mlp_conv = load_conv(prefix + "mlp_conv.");
  }
  return weights;
}

GroupedConvWeights BlockDraftLoader::load_conv(const std::string& prefix) {
  return {.base_kernel = values(prefix + "base_kernel"),
          .projection = matrix(prefix + "kernel_projection.weight")};
}

MarkovWeights BlockDraftLoader::load_markov() {
  const std::string prefix = "markov_head.";
  MarkovWeights weights;
  weights.w1 = matrix(prefix + "markov_w1.weight");
  weights.w2 = matrix(prefix + "markov_w2.weight");
  if (config_.markov == MarkovKind::kGated) {
    weights.gate = matrix(prefix + "gate_proj.weight");
    weights.gate_bias = values(prefix + "gate_proj.bias");
  }
  if (config_.markov == MarkovKind::kRnn) {
    weights.gate = matrix(prefix + "joint_proj.weight");
    weights.gate_bias = values(prefix + "joint_proj.bias");
  }
  return weights;
}

ConfidenceWeights BlockDraftLoader::load_confidence() {
  ConfidenceWeights weights;
  weights.weight = values("confidence_head.proj.weight");
  const std::string bias = "confidence_head.proj.bias";
  if (!reader_.has(stored(bias))) return weights;
  const std::vector<float> stored_bias = values(bias);
  if (!stored_bias.empty()) weights.bias = stored_bias.front();
  return weights;
}

// A learned input in place of the mask token's embedding, which some writers keep out of the
// safetensors.
void BlockDraftLoader::refuse_mask_embedding_file() {
  const std::string name = "mask_embedding.pt";
  std::error_code ignored;
  const auto path = std::filesystem::path(reader_.checkpoint().directory()) / name;
  if (!std::filesystem::exists(path, ignored)) return;
  reader_.error(name,
                "a file with an embedding of its own for masked rows; such drafts are not "
                "supported");
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
