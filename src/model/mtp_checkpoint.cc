#include "model/mtp_checkpoint.h"

#include <utility>

#include "dhisparse/base.h"

namespace dhs {
namespace {

// More follow each other no better than the layer was trained to; published engines stop at 5.
constexpr int32_t kMostIterations = 7;

// The layer has an indexer of its own: it begins an index group.
TargetConfig with_mtp_layer(TargetConfig config) {
  config.index_groups.push_back({.first_layer = config.num_layers, .num_layers = 1});
  ++config.num_layers;
  return config;
}

absl::Status same_layer_shape(const TargetConfig& draft, const TargetConfig& target) {
  const std::pair<const char*, std::pair<double, double>> sizes[] = {
      {"num_hidden_layers", {draft.num_layers, target.num_layers}},
      {"vocab_size", {draft.vocab_size, target.vocab_size}},
      {"hidden_size", {draft.hidden_dim, target.hidden_dim}},
      {"num_attention_heads", {draft.num_heads, target.num_heads}},
      {"kv_lora_rank", {draft.kv_lora_rank, target.kv_lora_rank}},
      {"qk_rope_head_dim", {draft.qk_rope_dim, target.qk_rope_dim}},
      {"index_head_dim", {draft.index_dim, target.index_dim}},
      {"index_topk", {draft.index_top_k, target.index_top_k}},
      {"rope_theta", {draft.rope_theta, target.rope_theta}}};
  for (const auto& [name, values] : sizes) {
    if (values.first == values.second) continue;
    return absl::InvalidArgumentError(absl::StrCat("the MTP layer's ", name, " is ", values.first,
                                                   ", the target's is ", values.second,
                                                   "; it was made for another target"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MtpCheckpoint> open_mtp_checkpoint(const std::string& directory,
                                                  const std::string& target_directory) {
  const std::string& own = directory.empty() ? target_directory : directory;
  DHS_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(own));
  DHS_ASSIGN_OR_RETURN(Checkpoint target, Checkpoint::open(target_directory));
  DHS_ASSIGN_OR_RETURN(const TargetConfig of_draft,
                       parse_target_config(checkpoint.config_json(), ""));
  DHS_ASSIGN_OR_RETURN(const TargetConfig of_target, parse_target_config(target.config_json(), ""));
  DHS_RETURN_IF_ERROR(same_layer_shape(of_draft, of_target));
  if (of_draft.num_mtp_layers != 1) {
    return absl::InvalidArgumentError(absl::StrCat(own, ": num_nextn_predict_layers is ",
                                                   of_draft.num_mtp_layers,
                                                   "; one MTP layer is supported"));
  }
  const std::string indexer =
      absl::StrCat("model.layers.", of_draft.num_layers, ".self_attn.indexer.wk.weight");
  if (!checkpoint.find(indexer).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(own, ": ", indexer,
                     " is missing; an MTP layer without an indexer of its own is not "
                     "supported: the target's selection is not the one it was trained with"));
  }
  return MtpCheckpoint{std::move(checkpoint), std::move(target), with_mtp_layer(of_draft)};
}

DraftDescription describe_mtp() {
  DraftDescription description;
  description.family = "mtp";
  description.num_proposals = kMostIterations;
  description.taps_final_hidden = true;
  description.layers_per_group = {1};
  return description;
}

}  // namespace dhs
