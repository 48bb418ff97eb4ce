// block_draft_tensors: which tensors a block draft's checkpoint must hold, from its config alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/block_draft_config.h"

namespace dhs {

struct DraftTensor {
  std::string name;  // canonical: the loader also looks for it under the names other writers use
  std::vector<int64_t> shape;
  bool is_optional = false;
};

// In the order of the layers. Copies of the target's embedding and head, which some writers add,
// are not among them.
std::vector<DraftTensor> block_draft_tensors(const BlockDraftConfig& config);

// Elements of all of them, optional ones included.
int64_t num_block_draft_parameters(const BlockDraftConfig& config);

}  // namespace dhs
