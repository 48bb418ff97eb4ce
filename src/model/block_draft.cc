#include "model/block_draft.h"

#include <utility>

#include "model/checkpoint.h"
#include "model/draft_backbone.h"
#include "model/draft_description.h"
#include "model/proposal_head.h"

namespace dhs {
namespace {

class BlockDraft final : public Draft {
 public:
  BlockDraft(BlockDraftConfig config, const TargetModel& target, Device& device)
      : config_(std::move(config)), target_(target), device_(device), backbone_(config_, device) {}

  absl::Status load(const Checkpoint& checkpoint, const Checkpoint& target,
                    const DraftOptions& options) {
    DHS_ASSIGN_OR_RETURN(const BlockDraftWeights weights,
                         load_block_draft_weights(checkpoint, config_, target));
    description_ = describe(config_, options.page_dtype);
    const SharedWeights shared = target_.shared_weights();
    DHS_ASSIGN_OR_RETURN(WeightUploader uploader, WeightUploader::create(device_));
    DHS_RETURN_IF_ERROR(backbone_.load(weights, shared, uploader, options));
    DHS_ASSIGN_OR_RETURN(head_, make_proposal_head({config_, weights, shared, options}, uploader));
    return absl::OkStatus();
  }

  const DraftDescription& description() const override { return description_; }

  void append(const DraftStep& step, KvStore& kv) override {
    backbone_.append(step.taps, step.rows.positions, kv);
  }

  void propose(const DraftBlocks& blocks, KvStore& kv, const Proposals& out) override {
    head_->propose(backbone_.run(blocks, kv), blocks, out);
  }

 private:
  const BlockDraftConfig config_;
  const TargetModel& target_;
  Device& device_;
  DraftDescription description_;
  DraftBackbone backbone_;
  std::unique_ptr<ProposalHead> head_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Draft>> load_block_draft(const std::string& directory,
                                                        const std::string& target_directory,
                                                        TargetModel& target, Device& device,
                                                        const DraftOptions& options) {
  DHS_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(directory));
  DHS_ASSIGN_OR_RETURN(const Checkpoint target_checkpoint, Checkpoint::open(target_directory));
  DHS_ASSIGN_OR_RETURN(BlockDraftConfig config, parse_block_draft_config(checkpoint.config_json()));
  auto draft = std::make_unique<BlockDraft>(std::move(config), target, device);
  DHS_RETURN_IF_ERROR(draft->load(checkpoint, target_checkpoint, options));
  return draft;
}

}  // namespace dhs
