// weights: the tensors of a target checkpoint, by role, with shapes checked against its config.
// Immutable after loading; any number of threads may read.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <vector>

#include "model/target_config.h"
#include "model/tensor_reader.h"

namespace dhs {

struct MlpWeights {
  WeightMatrix gate;  // [intermediate, hidden]
  WeightMatrix up;    // [intermediate, hidden]
  WeightMatrix down;  // [hidden, intermediate]
};

struct MoeWeights {
  WeightMatrix router;                      // [num_experts, hidden]
  std::vector<float> choice_bias;           // [num_experts]: moves the choice, never the weights
  std::vector<MlpWeights> experts;          // [num_experts], of moe_intermediate_dim
  std::optional<MlpWeights> shared_expert;  // of num_shared_experts * moe_intermediate_dim
};

struct IndexerWeights {
  WeightMatrix query;                  // wq_b: [index_num_heads * index_dim, q_lora_rank]
  WeightMatrix key;                    // wk: [index_dim, hidden]
  WeightMatrix head_weights;           // weights_proj: [index_num_heads, hidden]
  std::vector<float> key_norm_weight;  // [index_dim], of a LayerNorm
  std::vector<float> key_norm_bias;    // [index_dim]
};

struct LayerWeights {
  std::vector<float> input_norm;           // [hidden]
  std::vector<float> post_attention_norm;  // [hidden]
  WeightMatrix q_a;                        // [q_lora_rank, hidden]
  std::vector<float> q_a_norm;             // [q_lora_rank]
  WeightMatrix q_b;                        // [num_heads * (nope + rope), q_lora_rank]
  WeightMatrix kv_a;                       // [kv_lora_rank + rope, hidden]
  std::vector<float> kv_a_norm;            // [kv_lora_rank]
  WeightMatrix kv_b;                       // [num_heads * (nope + v), kv_lora_rank]
  WeightMatrix o;                          // [hidden, num_heads * v]
  std::optional<IndexerWeights> indexer;   // the first layer of an index group has one
  std::optional<MlpWeights> dense;         // exactly one of these two
  std::optional<MoeWeights> moe;
};

struct TargetWeights {
  WeightMatrix embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  WeightMatrix lm_head;           // [vocab, hidden]; the embedding when they are tied
};

// The multi-token prediction layer behind the trunk.
struct MtpWeights {
  std::vector<float> embedding_norm;  // enorm: [hidden]
  std::vector<float> hidden_norm;     // hnorm: [hidden]
  WeightMatrix projection;            // eh_proj: [hidden, 2 * hidden], of [embedding; hidden]
  LayerWeights layer;
  std::vector<float> final_norm;     // shared_head.norm: [hidden]
  std::optional<WeightMatrix> head;  // shared_head.head: [vocab, hidden], where it is not lm_head
};

// INVALID_ARGUMENT lists every tensor (up to a limit) that is missing, has a wrong shape or dtype,
// holds a scale or vector element that is not finite, or has no known use. MTP layers and stored
// rope frequencies are skipped.
absl::StatusOr<TargetWeights> load_target_weights(const Checkpoint& checkpoint,
                                                  const TargetConfig& config);

// config: the target's with the MTP layer as one layer more (with_mtp_layer). `target` has the
// embedding and the head that copies are compared with; it may be `checkpoint`. Tensors of the
// trunk are skipped.
absl::StatusOr<MtpWeights> load_mtp_weights(const Checkpoint& checkpoint,
                                            const TargetConfig& config, const Checkpoint& target);

}  // namespace dhs
