#include "dhisparse/draft.h"
#include "model/block_draft.h"
#include "model/checkpoint.h"
#include "model/mtp_draft.h"

namespace dhs {
namespace {

absl::StatusOr<TargetConfig> config_of_target(const std::string& directory) {
  DHS_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(directory));
  return parse_target_config(checkpoint.config_json(), checkpoint.generation_config_json());
}

absl::Status check_kind(DraftKind wanted, BlockDraftFamily found) {
  const bool is_same = (wanted == DraftKind::kDflash && found == BlockDraftFamily::kDflash) ||
                       (wanted == DraftKind::kDflash2 && found == BlockDraftFamily::kDflash2) ||
                       (wanted == DraftKind::kDspark && found == BlockDraftFamily::kDspark);
  if (is_same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "draft.kind does not go with the checkpoint of draft.path, which is a ",
      block_draft_family_name(found), " draft; set draft.kind: ", block_draft_family_name(found)));
}

}  // namespace

absl::StatusOr<DraftDescription> describe_draft(const DraftConfig& config,
                                                const std::string& target_directory,
                                                DType page_dtype) {
  if (config.kind == DraftKind::kMtp) return describe_mtp_draft(config.path, target_directory);
  DHS_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(config.path));
  DHS_ASSIGN_OR_RETURN(const BlockDraftConfig draft,
                       parse_block_draft_config(checkpoint.config_json()));
  DHS_RETURN_IF_ERROR(check_kind(config.kind, draft.family));
  DHS_ASSIGN_OR_RETURN(const TargetConfig target, config_of_target(target_directory));
  DHS_RETURN_IF_ERROR(check_target(draft, target));
  return describe(draft, page_dtype);
}

absl::StatusOr<std::unique_ptr<Draft>> load_draft(const DraftConfig& config,
                                                  const std::string& target_directory,
                                                  TargetModel& target, Device& device,
                                                  const DraftOptions& options) {
  if (config.kind == DraftKind::kMtp) {
    return load_mtp_draft(config.path, target_directory, target, device, options);
  }
  return load_block_draft(config.path, target_directory, target, device, options);
}

}  // namespace dhs
