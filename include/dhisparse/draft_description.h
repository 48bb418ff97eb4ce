// What a draft's checkpoint says of itself, without loading weights.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dhisparse/config.h"
#include "kernels/draft_attention/draft_attention.h"

namespace dhs {

// How a draft's tokens come about, and with that what verification needs of each.
enum class ProposalKind {
  kChosen,      // the likeliest: no distribution
  kCandidates,  // drawn from a few candidates
  kDense,       // drawn from the whole vocabulary
};

struct DraftDescription {
  std::string family;
  int32_t num_proposals = 0;  // of a block, at most
  ProposalKind kind = ProposalKind::kChosen;
  int32_t num_candidates = 0;          // kCandidates
  bool has_confidence = false;         // otherwise it is to be learned from what is accepted
  std::vector<int32_t> target_layers;  // whose outputs are its taps, in order
  bool taps_final_hidden = false;      // its tap is the hidden state behind the target's final norm
  DraftPageLayout page;                // num_layers 0: it keeps no pages
  int64_t context_window = 0;          // tokens of context that a block needs; 0: all
  // Index groups of its own, behind the target's, that the store keeps for it.
  std::vector<int32_t> layers_per_group;
};

// What the draft's checkpoint says of itself, checked against the target's. `config.kind` must be
// one that has a model. INVALID_ARGUMENT when it was made for another target, or is of another
// kind than the configuration says.
absl::StatusOr<DraftDescription> describe_draft(const DraftConfig& config,
                                                const std::string& target_directory,
                                                DType page_dtype);

// By place in the block, from a JSON array of positive numbers in `file`; empty: none.
// INVALID_ARGUMENT or NOT_FOUND names the file, and more than num_proposals numbers are an error.
absl::StatusOr<std::vector<float>> read_confidence_temperatures(const std::string& file,
                                                                int32_t num_proposals);

}  // namespace dhs
