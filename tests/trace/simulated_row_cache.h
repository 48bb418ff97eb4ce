// One index group's row cache as state alone: the real passes of kernels/resolve, no record bytes.
#pragma once

#include <bit>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/row_cache_arrays.h"

namespace dhs::test {

// Requests on consecutive host blocks: request r's position p is host row r * rows_each + p.
class SimulatedRowCache {
 public:
  struct Shape {
    int32_t num_requests = 1;
    int32_t rows_each = 0;  // a multiple of a host block
    int32_t num_slots = 0;
    int32_t slots_per_segment = 0;  // 0: all slots are one, and live
  };

  explicit SimulatedRowCache(Shape shape)
      : shape_(shape),
        rows_({.num_host_rows = int64_t{shape.num_requests} * shape.rows_each,
               .num_slots = shape.num_slots,
               .slots_per_segment =
                   shape.slots_per_segment == 0 ? shape.num_slots : shape.slots_per_segment,
               .num_evicted =
                   static_cast<int64_t>(std::bit_ceil(static_cast<size_t>(shape.num_slots))),
               .num_host_blocks = shape.num_requests * shape.rows_each / kHostBlockTokens}),
        block_table_(rows_.slot_of.size() / kHostBlockTokens) {
    for (size_t i = 0; i < block_table_.size(); ++i) block_table_[i] = static_cast<int32_t>(i);
    launch_reset_row_cache({state()}, {});
    if (shape_.slots_per_segment == 0) add_segment();
  }

  void add_segment() { launch_add_segment({state()}, {}); }
  void release_segment() {
    std::vector<MoveOrder> moves(state().slots_per_segment);
    int32_t num_moves = 0;
    int64_t num_dropped = 0;
    launch_release_segment({state(), view(moves.data(), moves.size()), &num_moves, &num_dropped},
                           {});
  }
  // How many rows came back.
  int64_t refill(int64_t max_rows) {
    std::vector<FetchOrder> orders(max_rows);
    int32_t num_orders = 0;
    int64_t num_refilled = 0;
    launch_refill({.cache = state(),
                   .block_tokens = kHostBlockTokens,
                   .orders = view(orders.data(), orders.size()),
                   .num_orders = &num_orders,
                   .num_refilled = &num_refilled},
                  {});
    return num_refilled;
  }
  int64_t num_resident() const { return rows_.num_resident(); }

  RowCacheState state() { return rows_.state(); }
  int64_t host_row(int32_t request, int32_t position) const {
    return int64_t{request} * shape_.rows_each + position;
  }

  // The step's own rows, which the pass that follows cannot evict.
  void claim(const std::vector<int64_t>& host_rows) {
    ResolveCounters counters;
    launch_claim({.cache = state(),
                  .host_rows = view<const int64_t>(host_rows.data(), host_rows.size()),
                  .protect_in_next_pass = true,
                  .counters = &counters},
                 {});
  }

  // One query row for every entry of `requests`, all of them with as many positions. The rows that
  // missed.
  int64_t resolve(const std::vector<int32_t>& requests,
                  const std::vector<std::vector<int32_t>>& selections) {
    const auto num_rows = static_cast<int64_t>(requests.size());
    const auto top_k = static_cast<int64_t>(selections[0].size());
    std::vector<int32_t> flat;
    for (const auto& row : selections) flat.insert(flat.end(), row.begin(), row.end());
    slots_.resize(flat.size());
    misses_.resize(flat.size());
    ResolveCounters counters;
    int32_t num_misses = 0;
    ResolveParams params;
    params.cache = state();
    params.selection = view<const int32_t>(flat.data(), num_rows, top_k);
    params.sequence_of_row = view<const int32_t>(requests.data(), num_rows);
    params.block_table = view<const int32_t>(block_table_.data(), shape_.num_requests,
                                             shape_.rows_each / kHostBlockTokens);
    params.block_tokens = kHostBlockTokens;
    params.slots = view(slots_.data(), num_rows, top_k);
    params.misses = view(misses_.data(), misses_.size());
    params.num_misses = &num_misses;
    params.counters = &counters;
    launch_resolve(params, {});
    return counters.missed;
  }

  // The first violated invariant, or nullptr.
  const char* check() { return rows_.check(); }

 private:
  const Shape shape_;
  RowCacheArrays rows_;
  std::vector<int32_t> block_table_;
  std::vector<int32_t> slots_;
  std::vector<FetchOrder> misses_;
};

}  // namespace dhs::test
