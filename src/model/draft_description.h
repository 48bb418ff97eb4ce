#pragma once

#include "dhisparse/draft_description.h"
#include "model/block_draft_config.h"

namespace dhs {

// page_dtype: of the draft's pages.
DraftDescription describe(const BlockDraftConfig& config, DType page_dtype);

}  // namespace dhs
