// block_draft_config: config.json of a draft that proposes a block of tokens in one pass -> plain
// numbers the forward pass can trust.
//
// Families: DFlash (z-lab), DFlash2 (incoai, z-lab) and DSpark (DeepSpec, speculators). They share
// one backbone: Qwen3-style layers whose keys and values come from the target's hidden states as
// well as from the block. As strict as target_config.h: a key that may change the math and is not
// implemented is an error.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"
#include "model/target_config.h"

namespace dhs {

enum class BlockDraftFamily { kDflash, kDflash2, kDspark };
const char* block_draft_family_name(BlockDraftFamily family);  // "dflash", "dflash2", "dspark"

// Which keys a layer's block rows attend to.
struct BlockLayerMask {
  bool is_causal = false;  // within the block
  int64_t window = 0;      // the row's position counts; 0: none
  friend bool operator==(const BlockLayerMask&, const BlockLayerMask&) = default;
};

enum class MarkovKind { kNone, kVanilla, kGated, kRnn };

struct BlockDraftConfig {
  BlockDraftFamily family = BlockDraftFamily::kDflash;
  int vocab_size = 0;
  int hidden_dim = 0;
  int target_hidden_dim = 0;
  int intermediate_dim = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;  // half-split pairs, over all of head_dim
  // Outputs of these layers of the target, in the order of fc's columns.
  std::vector<int> target_layers;
  int num_target_layers = 0;  // 0: not said
  TokenId mask_token = 0;
  std::vector<BlockLayerMask> masks;  // by layer

  int block_rows = 0;  // the anchor's row included
  // True: row k proposes the token at p0 + k + 1. False: row i proposes the one at its own position
  // p0 + i, and row 0 none.
  bool proposes_from_anchor = false;
  int num_proposals() const { return proposes_from_anchor ? block_rows : block_rows - 1; }

  // DFlash2: the convolution around both sublayers, and the candidate selector.
  int conv_taps = 0;
  int conv_group_channels = 0;
  int selector_rank = 0;
  int selector_top_k = 0;
  double logit_multiplier = 1;
  double logit_softcap = 0;  // 0: none

  // DSpark.
  MarkovKind markov = MarkovKind::kNone;
  int markov_rank = 0;
  bool has_confidence = false;
  bool confidence_sees_markov = false;

  int64_t kv_width() const { return int64_t{num_kv_heads} * head_dim; }
  // Tokens of context that a block needs; 0: all.
  int64_t context_window() const;
  friend bool operator==(const BlockDraftConfig&, const BlockDraftConfig&) = default;
};

// INVALID_ARGUMENT lists every error, one per line; UNIMPLEMENTED when the architecture is none of
// ours. `json` is the text of config.json.
absl::StatusOr<BlockDraftConfig> parse_block_draft_config(std::string_view json);

// INVALID_ARGUMENT, with every reason, unless the draft was made for a target of this shape.
absl::Status check_target(const BlockDraftConfig& draft, const TargetConfig& target);

}  // namespace dhs
