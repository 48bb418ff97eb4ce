// draft: models that propose tokens for the target to verify.
//
// A draft computes from what the target's forward pass leaves: its taps. When a step's draws are
// verified, it first appends: its keys and values of all of the step's tokens, a pure function of
// their taps, go to both memory tiers; those of steps in which nobody drafts may come later. What
// it appends of drafts that were rejected is rewritten before anything can see it, as the target's
// rows are. Then it proposes: a block of tokens to follow each anchor, the newest token.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dhisparse/config.h"
#include "dhisparse/device.h"
#include "dhisparse/draft_description.h"
#include "dhisparse/model.h"
#include "dhisparse/store.h"
#include "kernels/candidate_walk/candidate_walk.h"

namespace dhs {

// What the target has computed and committed, of one step or of several. Device memory.
struct DraftStep {
  QueryRows rows;
  TensorView<const int32_t, 1> next_tokens;  // [num_rows] the token behind each row's, where that
                                             // is committed; otherwise any
  TensorView<const float, 2> taps;           // [num_rows, tap width]
};

// One block per draw of the step. Device memory.
struct DraftBlocks {
  TensorView<const int32_t, 1> anchors;            // [num_blocks] tokens
  TensorView<const int32_t, 1> anchor_positions;   // [num_blocks], negative: padding
  TensorView<const int32_t, 1> row_before_anchor;  // [num_blocks] of the step's, padding: any
  TensorView<const int32_t, 1> sequence_of_block;  // [num_blocks] rows of the tables
  // [num_blocks] where what the sequence has memory for ends: proposals that need rows of their own
  // from there on are any.
  TensorView<const int32_t, 1> end_positions;
  TensorView<ProposalSampling, 1> sampling;  // [num_blocks]; positions are filled in here
  std::span<const int32_t> host_sequence_of_block;
  std::span<const int32_t> host_most_positions;  // that an anchor can have, by block
  int32_t num_wanted = 0;  // proposals of a block; a draft that makes all at once makes all
  int64_t num_blocks() const { return anchors.sizes[0]; }
};

// Device memory of the caller's, who keeps it until the drafts are verified. Block b's are row b.
struct Proposals {
  TensorView<int32_t, 2> drafts;       // [num_blocks, num_proposals]
  TensorView<float, 2> confidence;     // [num_blocks, num_proposals], if the draft has it
  TensorView<int32_t, 2> candidates;   // kCandidates: [num_blocks * num_proposals, K]
  TensorView<float, 2> probabilities;  // of those, or kDense: of [vocab_size] tokens
};

struct DraftOptions {
  int64_t max_query_rows = 0;  // of one forward
  int64_t max_blocks = 0;      // of one step
  int64_t max_context = 0;
  DType page_dtype = DType::kBf16;       // of the draft's pages: kBf16 or kF32
  Communicator* communicator = nullptr;  // as the target's: ranks that share requests
  // By proposal: divides the logit of its confidence; shorter: 1 for the others.
  std::vector<float> confidence_temperatures;
};

class Draft {
 public:
  virtual ~Draft() = default;

  virtual const DraftDescription& description() const = 0;

  // Behind the target's forward pass over the rows, when its draws are verified. The store's step
  // has the same rows.
  virtual void append(const DraftStep& step, KvStore& kv) = 0;

  // Behind append(). A block's proposals depend on its sequence's
  // tokens, its sampling and the taps only: not on the other blocks.
  virtual void propose(const DraftBlocks& blocks, KvStore& kv, const Proposals& out) = 0;
};

// `target` must have been loaded for this draft's taps, and outlive it.
absl::StatusOr<std::unique_ptr<Draft>> load_draft(const DraftConfig& config,
                                                  const std::string& target_directory,
                                                  TargetModel& target, Device& device,
                                                  const DraftOptions& options);

}  // namespace dhs
