// mtp_checkpoint: where a multi-token prediction layer is stored: behind the trunk of its target,
// or in a directory of its own with the target's config.json.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "dhisparse/draft_description.h"
#include "model/checkpoint.h"
#include "model/target_config.h"

namespace dhs {

struct MtpCheckpoint {
  Checkpoint checkpoint;
  Checkpoint target;
  TargetConfig config;  // of the target with the MTP layer as one layer more, a group of its own
};

// directory: of the MTP layer; empty: the target's own. INVALID_ARGUMENT when there is no such
// layer, or not one for this target; UNIMPLEMENTED when the target's family is none of ours, or
// what is stored are DSpark stages ("mtp.0." and so on), which look like it and are not.
absl::StatusOr<MtpCheckpoint> open_mtp_checkpoint(const std::string& directory,
                                                  const std::string& target_directory);
DraftDescription describe_mtp();

}  // namespace dhs
