// block_draft: DFlash, DFlash2 and DSpark: the backbone, and a head that proposes from its rows.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "dhisparse/draft.h"

namespace dhs {

// config: checked against the target.
absl::StatusOr<std::unique_ptr<Draft>> load_block_draft(const std::string& directory,
                                                        const std::string& target_directory,
                                                        TargetModel& target, Device& device,
                                                        const DraftOptions& options);

}  // namespace dhs
