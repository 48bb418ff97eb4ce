#include "model/model_description.h"

#include "dhisparse/base.h"
#include "model/checkpoint.h"

namespace dhs {

ModelDescription describe(const TargetConfig& config) {
  ModelDescription description;
  description.family = target_family_name(config.family);
  description.vocab_size = config.vocab_size;
  description.max_position = config.max_position;
  description.eos_token_ids = config.eos_token_ids;
  for (const IndexGroup& group : config.index_groups) {
    description.layers_per_group.push_back(group.num_layers);
  }
  description.num_heads = config.num_heads;
  description.latent_dim = config.kv_lora_rank;
  description.rope_dim = config.qk_rope_dim;
  description.index_dim = config.index_dim;
  description.top_k = config.index_top_k;
  return description;
}

absl::StatusOr<ModelDescription> describe_model(const std::string& directory) {
  DHS_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(directory));
  DHS_ASSIGN_OR_RETURN(
      const TargetConfig config,
      parse_target_config(checkpoint.config_json(), checkpoint.generation_config_json()));
  return describe(config);
}

}  // namespace dhs
