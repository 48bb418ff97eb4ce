// proposal_head: from the output rows of a draft's block to the tokens that it proposes.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

#include "dhisparse/draft.h"
#include "model/block_draft_weights.h"
#include "model/device_weights.h"

namespace dhs {

class ProposalHead {
 public:
  virtual ~ProposalHead() = default;
  // y: [num_blocks * block_rows, hidden], behind the draft's final norm.
  virtual void propose(TensorView<const float, 2> y, const DraftBlocks& blocks,
                       const Proposals& out) = 0;
};

struct ProposalHeadInputs {
  const BlockDraftConfig& config;  // outlives the head
  const BlockDraftWeights& weights;
  SharedWeights shared;
  const DraftOptions& options;
};

// DFlash: the largest logit of each row. DFlash2: the candidate selector's walk. DSpark: left to
// right, each token's logits moved by the one before it.
absl::StatusOr<std::unique_ptr<ProposalHead>> make_proposal_head(const ProposalHeadInputs& inputs,
                                                                 WeightUploader& uploader);

}  // namespace dhs
