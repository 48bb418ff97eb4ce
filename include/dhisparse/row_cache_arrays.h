// The arrays of one row cache (kernels/resolve/resolve.h) in ordinary memory: for whoever runs its
// passes without records, and for looking at what a device's cache holds.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/resolve/resolve.h"

namespace dhs {

struct RowCacheArrays {
  struct Sizes {
    int64_t num_host_rows = 0;
    int64_t num_slots = 0;
    int32_t slots_per_segment = 1;
    int64_t num_evicted = 0;  // that are remembered, a power of two; 0: none, nothing is refilled
    int64_t num_host_blocks = 0;
  };

  RowCacheArrays() = default;
  // Empty, no slot live.
  explicit RowCacheArrays(const Sizes& sizes)
      : slot_of(sizes.num_host_rows, kAbsent),
        owner_of(sizes.num_slots, kNoOwner),
        last_used(sizes.num_slots),
        free_ring(sizes.num_slots),
        slots_per_segment(sizes.slots_per_segment),
        evicted_rows(sizes.num_evicted, kNoOwner),
        evicted_stamps(sizes.num_evicted),
        evicted_before(sizes.num_evicted == 0 ? 0 : sizes.num_host_blocks) {}

  // Valid while this object stays where it is and its vectors keep their sizes.
  RowCacheState state() {
    return {view(slot_of.data(), slot_of.size()),
            view(owner_of.data(), owner_of.size()),
            view(last_used.data(), last_used.size()),
            view(free_ring.data(), free_ring.size()),
            &head,
            slots_per_segment,
            view(evicted_rows.data(), evicted_rows.size()),
            view(evicted_stamps.data(), evicted_stamps.size()),
            view(evicted_before.data(), evicted_before.size())};
  }
  int64_t num_resident() const { return head.num_live - head.num_free; }
  // As check_row_cache, which reads only.
  const char* check() const { return check_row_cache(const_cast<RowCacheArrays*>(this)->state()); }

  std::vector<int32_t> slot_of;
  std::vector<int64_t> owner_of;
  std::vector<uint32_t> last_used;
  std::vector<int32_t> free_ring;
  RowCacheHead head;
  int32_t slots_per_segment = 1;
  std::vector<int64_t> evicted_rows;
  std::vector<uint32_t> evicted_stamps;
  std::vector<int64_t> evicted_before;
};

}  // namespace dhs
