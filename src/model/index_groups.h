// index_groups: which layers select rows themselves, and which reuse the selection of one before.
#pragma once

#include <vector>

#include "model/config_reader.h"
#include "model/target_config.h"

namespace dhs {

// Reads, in the order in which one overrides the next: indexer_types ("full" or "shared" per
// layer), index_topk_pattern ("FS.." per layer), and index_topk_freq with index_skip_topk_offset
// (arXiv 2603.12201: full iff max(layer - offset + 1, 0) % freq == 0). With none of them every
// layer is full. Notes errors in `reader`; the result covers every layer all the same.
std::vector<IndexGroup> read_index_groups(ConfigReader& reader, int num_layers);

}  // namespace dhs
