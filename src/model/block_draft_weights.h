// block_draft_weights: the tensors of a block draft's checkpoint, by role.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <vector>

#include "model/block_draft_config.h"
#include "model/tensor_reader.h"

namespace dhs {

// One grouped dynamic convolution, both sides (before and after the sublayer).
struct GroupedConvWeights {
  std::vector<float> base_kernel;  // [2, taps, hidden]
  WeightMatrix projection;         // [2 * taps * groups, hidden]
};

struct BlockLayerWeights {
  std::vector<float> input_norm;                               // [hidden]
  std::vector<float> post_attention_norm;                      // [hidden]
  WeightMatrix q, k, v;                                        // [heads * head_dim, hidden]
  WeightMatrix o;                                              // [hidden, num_heads * head_dim]
  std::vector<float> q_norm, k_norm;                           // [head_dim]
  WeightMatrix gate, up;                                       // [intermediate, hidden]
  WeightMatrix down;                                           // [hidden, intermediate]
  std::optional<GroupedConvWeights> attention_conv, mlp_conv;  // DFlash2
};

struct SelectorWeights {
  WeightMatrix hidden_projection;  // [rank, hidden]
  WeightMatrix predecessors;       // [vocab, rank]
  WeightMatrix successors;         // [vocab, rank]
};

struct MarkovWeights {
  WeightMatrix w1;                   // [vocab, rank]
  WeightMatrix w2;                   // [vocab, rank]
  std::optional<WeightMatrix> gate;  // gated: [rank, hidden + rank], of [y; e]; rnn: [3 * rank,
                                     // 2 * rank + hidden], of [s; e; y]
  std::vector<float> gate_bias;
};

struct ConfidenceWeights {
  std::vector<float> weight;  // [hidden (+ rank)]
  float bias = 0;
};

struct BlockDraftWeights {
  WeightMatrix fc;                 // [hidden, taps * target hidden]
  std::vector<float> hidden_norm;  // [hidden], of the context features
  std::vector<float> norm;         // [hidden], of the block's output
  std::vector<BlockLayerWeights> layers;
  std::optional<SelectorWeights> selector;
  std::optional<MarkovWeights> markov;
  std::optional<ConfidenceWeights> confidence;
};

// Copies of the target's embedding and head are accepted where they are the target's, byte for
// byte. INVALID_ARGUMENT as load_target_weights.
absl::StatusOr<BlockDraftWeights> load_block_draft_weights(const Checkpoint& checkpoint,
                                                           const BlockDraftConfig& config,
                                                           const Checkpoint& target);

}  // namespace dhs
