// What one rank holds and computes of a model that several ranks run together.
//
// tensor: every rank computes every row, with its part of the heads, of the intermediate columns
// and of the experts; what a sublayer leaves is a partial sum. data: every rank computes its own
// rows, with all of the attention, and its experts work on the rows of all ranks.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>

#include "dhisparse/communicator.h"
#include "dhisparse/model.h"
#include "model/target_config.h"

namespace dhs {

// One of `size` equal, contiguous parts.
struct Shard {
  int rank = 0;
  int size = 1;

  int64_t part_of(int64_t whole) const { return whole / size; }
  int64_t first_of(int64_t whole) const { return rank * part_of(whole); }
};

struct Sharding {
  Shard heads;                      // of attention; the indexer is whole on every rank
  Shard mlp;                        // intermediate columns of dense layers and of the shared expert
  Shard experts;                    // of an expert layer
  Communicator* summing = nullptr;  // tensor: sums what the sublayers of all ranks leave
  Communicator* gathering = nullptr;  // data: brings all ranks' rows to the experts

  // Rows that an expert layer works on, when no rank has more than `rank_rows`.
  int64_t expert_rows(int64_t rank_rows) const {
    return gathering == nullptr ? rank_rows : rank_rows * gathering->size();
  }
};

// INVALID_ARGUMENT names the sizes that do not divide by the ranks, and how many ranks would do.
absl::StatusOr<Sharding> make_sharding(const TargetConfig& config, const ModelOptions& options);

// The configuration of a model that is only this rank's part in heads and dense columns.
TargetConfig own_part(TargetConfig config, const Sharding& sharding);

}  // namespace dhs
