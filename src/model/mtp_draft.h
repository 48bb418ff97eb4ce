// mtp_draft: the multi-token prediction layer of GLM-5.x and DeepSeek-V3.2 as a draft.
//
//   x_i = eh_proj [RMS(E[t_(i+1)]; enorm) ; RMS(h_i; hnorm)]     E is zero at position 0
//   h'_i = one layer of the target's kind at position i;  g_i = RMS(h'_i; shared_head.norm)
//   token i + 2 = argmax of head g_i
// h_i is the target's hidden state behind its final norm. Further tokens come from the same layer,
// fed with the token before and g in place of h. Its rows and index keys are an index group of the
// store, written for every token as the target's are.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "dhisparse/draft.h"

namespace dhs {

// directory: of the MTP layer; empty: the target's own checkpoint.
absl::StatusOr<std::unique_ptr<Draft>> load_mtp_draft(const std::string& directory,
                                                      const std::string& target_directory,
                                                      TargetModel& target, Device& device,
                                                      const DraftOptions& options);

}  // namespace dhs
