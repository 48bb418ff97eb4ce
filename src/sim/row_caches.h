// The sampled groups' row caches without bytes: the real passes of kernels/resolve over their
// state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dhisparse/kv.h"
#include "dhisparse/row_cache_arrays.h"
#include "dhisparse/sim.h"
#include "dhisparse/step.h"

namespace dhs::sim {

// Query rows of a step, in the order of their requests.
struct StepRows {
  int64_t num_groups = 0;
  int64_t top_k = 0;
  std::vector<int32_t> sequence_of_row;  // number of its request within the step
  std::vector<int32_t> selection;        // [row][group][top_k] positions, -1 padded
  std::vector<int64_t> host_rows;        // that the rows write, all different
  std::vector<int32_t> block_table;      // [request][max_num_blocks]
  int64_t max_num_blocks = 0;
  int64_t num_sequences = 0;

  int64_t num_rows() const { return std::ssize(sequence_of_row); }
  std::span<const int32_t> selected(int64_t row, int64_t group) const {
    return std::span(selection).subspan((row * num_groups + group) * top_k, top_k);
  }
};

class RowCaches {
 public:
  // max_rows: host rows. A cache has slots for no more of them.
  RowCaches(const KvGeometry& geometry, const KvCapacity& capacity);

  // A plan's memory changes, in the order in which a store makes them.
  struct Changes {
    int64_t chunks_released = 0;  // by row caches
    int64_t rows_refilled = 0;
  };
  Changes apply(const RankPlan& plan);

  // One step: claim and resolve in every group; by request, what it selected and missed.
  void run(const StepRows& rows);
  const std::vector<RowCounts>& counts_of_groups() const { return counts_; }  // of the latest step
  const std::vector<int64_t>& selected_of_sequence() const { return selected_of_sequence_; }
  const std::vector<int64_t>& missed_of_sequence() const { return missed_of_sequence_; }

  // Makes rows resident without a fetch, as used later than all before.
  void fill(int group, std::span<const int64_t> host_rows);
  int64_t num_slots(int group) const { return caches_[group].head.num_live; }
  int64_t num_resident(int group) const { return caches_[group].num_resident(); }

  // The first violated invariant, or empty. O(host rows).
  std::string check_invariants() const;

 private:
  struct Tile {
    int64_t first_row = 0;
    int64_t num_rows = 0;
  };

  void release(RowCacheArrays& cache);
  int64_t refill(RowCacheArrays& cache, int64_t max_rows);
  std::vector<Tile> tiles(const StepRows& rows, int group);
  void resolve(const StepRows& rows, int group, const Tile& tile, ResolveCounters& counters);

  std::vector<RowCacheArrays> caches_;
  std::vector<RowCounts> counts_;
  std::vector<int64_t> selected_of_sequence_;
  std::vector<int64_t> missed_of_sequence_;
  // Grown once, then reused.
  std::vector<int32_t> slots_;
  std::vector<FetchOrder> orders_;
  std::vector<MoveOrder> moves_;
  std::vector<uint32_t> tile_of_host_row_;
  uint32_t num_tiles_ = 0;  // ever cut
};

}  // namespace dhs::sim
