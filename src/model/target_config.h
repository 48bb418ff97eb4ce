// target_config: config.json of a target family -> plain numbers the forward pass can trust.
//
// Families: GLM-5.x (glm_moe_dsa) and DeepSeek-V3.2 (deepseek_v32). They share one skeleton: MLA, a
// lightning indexer that selects the rows to attend to, and a sigmoid-routed mixture of experts.
//
// Strict: every key of config.json is either consumed, checked for the one value we implement, or
// on a list of keys that cannot change the result. Any other key may change the math, and is an
// error.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"
#include "kernels/rope/rope.h"

namespace dhs {

enum class TargetFamily { kGlmMoeDsa, kDeepseekV32 };
const char* target_family_name(TargetFamily family);  // the model_type of config.json

// How matrices are stored. kFp8Blocks: those whose dtype is F8_E4M3 carry one f32 multiplier
// ("weight_scale_inv") per block of kScaleBlock x kScaleBlock elements.
enum class WeightQuantization { kNone, kFp8Blocks };
inline constexpr int64_t kScaleBlock = 128;

// Consecutive layers that share the selection of the first of them, which owns the indexer.
struct IndexGroup {
  int first_layer = 0;
  int num_layers = 1;
  friend bool operator==(const IndexGroup&, const IndexGroup&) = default;
};

struct TargetConfig {
  TargetFamily family = TargetFamily::kGlmMoeDsa;
  int vocab_size = 0;
  int hidden_dim = 0;
  int num_layers = 0;      // of the trunk
  int num_mtp_layers = 0;  // stored after the trunk; the trunk does not need them
  int64_t max_position = 0;
  bool tie_word_embeddings = false;
  double rms_norm_eps = 0;  // input, post-attention and final norm
  // q_a and kv_a norm. Serving engines use rms_norm_eps here, and so do we. The Hugging Face
  // classes leave it at 1e-6 whatever the config says: compare with them at equal eps only.
  double latent_norm_eps = 0;

  // Attention (MLA).
  int num_heads = 0;
  int q_lora_rank = 0;   // width of the query latent
  int kv_lora_rank = 0;  // width of the KV latent: the c part of a row
  int qk_nope_dim = 0;
  int qk_rope_dim = 0;  // width of the one rope key: the kr part of a row
  int v_head_dim = 0;
  // (nope + rope)^-0.5, times the square of YaRN's mscale; never (latent + rope)^-0.5.
  double softmax_scale = 0;

  // Rope, in MLA always of interleaved pairs. The indexer uses the same frequencies.
  double rope_theta = 0;
  std::optional<YarnParams> yarn;
  double rope_magnitude = 1;  // multiplies cos and sin

  // Indexer. Of the index_dim channels of a query or key, rope turns the first qk_rope_dim.
  int index_num_heads = 0;
  int index_dim = 0;
  int index_top_k = 0;
  bool indexer_rope_interleaved = false;  // false: half-split pairs
  bool mtp_shares_selection = false;      // of the MTP layer's first iteration, in the later ones
  std::vector<IndexGroup> index_groups;  // ascending, without gaps, covers every layer of the trunk

  // MLP.
  int first_k_dense = 0;  // layers [0, first_k_dense) are dense, the others are mixtures of experts
  int dense_intermediate_dim = 0;
  int moe_intermediate_dim = 0;  // of one expert; shared experts are stored as one MLP of
                                 // num_shared_experts * moe_intermediate_dim
  int num_experts = 0;
  int experts_per_token = 0;
  int num_shared_experts = 0;  // may be 0
  int num_expert_groups = 1;   // equal groups of consecutive experts
  int top_expert_groups = 1;
  bool normalize_expert_weights = true;
  double routed_scale = 1;

  std::vector<TokenId> eos_token_ids;  // may be empty: then only limits end a sequence
  WeightQuantization quantization = WeightQuantization::kNone;

  int qk_head_dim() const { return qk_nope_dim + qk_rope_dim; }
  int latent_row_dim() const { return kv_lora_rank + qk_rope_dim; }  // rows of kv_a_proj_with_mqa
  bool is_dense_layer(int layer) const { return layer < first_k_dense; }
};

// The index of the group that `layer` belongs to, in [0, index_groups.size()).
// Precondition: 0 <= layer < num_layers.
int index_group_of_layer(const TargetConfig& config, int layer);
// True when `layer` is the first of its group: it has indexer weights and index keys.
bool layer_has_indexer(const TargetConfig& config, int layer);

// `generation_config_json` is empty when the checkpoint has none; where it names eos_token_id, that
// wins over config.json. INVALID_ARGUMENT lists every error, one per line ("config.json: key:
// why"); UNIMPLEMENTED when the architecture is none of ours.
absl::StatusOr<TargetConfig> parse_target_config(std::string_view config_json,
                                                 std::string_view generation_config_json);

}  // namespace dhs
