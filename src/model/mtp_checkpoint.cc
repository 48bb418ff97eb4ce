#include "model/mtp_checkpoint.h"

#include <string_view>
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
  std::string errors;
  for (const auto& [name, values] : sizes) {
    if (values.first == values.second) continue;
    absl::StrAppend(&errors, errors.empty() ? "" : "\n", "the MTP layer's ", name, " is ",
                    values.first, ", the target's is ", values.second,
                    "; it was made for another target");
  }
  return errors.empty() ? absl::OkStatus() : absl::InvalidArgumentError(errors);
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// They have names of their own, and are no decoder layer that could run one token at a time.
absl::Status refuse_dspark_stages(const Checkpoint& checkpoint) {
  for (std::string_view name : checkpoint.tensor_names()) {
    if (!starts_with(name, "mtp.")) continue;
    return absl::UnimplementedError(absl::StrCat(
        checkpoint.directory(), ": ", to_absl(name),
        " is a tensor of a DSpark stage, as DeepSeek-V4 has them inside the target; "
        "it is no MTP layer, and such stages are not supported; set draft.kind: none"));
  }
  return absl::OkStatus();
}

absl::Status check_layer_is_there(const Checkpoint& checkpoint, const TargetConfig& config) {
  const std::string layer = absl::StrCat("model.layers.", config.num_layers, ".");
  if (config.num_mtp_layers != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        checkpoint.directory(), ": num_nextn_predict_layers is ", config.num_mtp_layers,
        "; one MTP layer is supported; take a checkpoint that has it, or another draft.kind"));
  }
  if (!checkpoint.find(layer + "eh_proj.weight").has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint.directory(), ": ", layer,
                     "eh_proj.weight is missing; config.json says that there is an MTP layer, but "
                     "the checkpoint was stored without; let draft.path name one that has it"));
  }
  const std::string indexer = layer + "self_attn.indexer.wk.weight";
  if (!checkpoint.find(indexer).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint.directory(), ": ", indexer,
                     " is missing; an MTP layer without an indexer of its own is not "
                     "supported: the target's selection is not the one it was trained with"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MtpCheckpoint> open_mtp_checkpoint(const std::string& directory,
                                                  const std::string& target_directory) {
  const std::string& own = directory.empty() ? target_directory : directory;
  DHS_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(own));
  DHS_ASSIGN_OR_RETURN(Checkpoint target, Checkpoint::open(target_directory));
  DHS_RETURN_IF_ERROR(refuse_dspark_stages(checkpoint));
  DHS_ASSIGN_OR_RETURN(const TargetConfig of_draft,
                       parse_target_config(checkpoint.config_json(), ""));
  DHS_ASSIGN_OR_RETURN(const TargetConfig of_target, parse_target_config(target.config_json(), ""));
  DHS_RETURN_IF_ERROR(same_layer_shape(of_draft, of_target));
  DHS_RETURN_IF_ERROR(check_layer_is_there(checkpoint, of_draft));
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
