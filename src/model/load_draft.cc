#include "dhisparse/draft.h"
#include "model/block_draft.h"
#include "model/mtp_draft.h"

namespace dhs {

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
