// The sequential form of every pass: the reference of the CUDA kernels and, since a pass is a small
// part of a CPU step, the CPU version too.
#include <vector>

#include "dhisparse/base.h"
#include "kernels/resolve/resolve.h"
#include "kernels/resolve/row_cache.h"

namespace dhs {
namespace {

int64_t host_row_of(const ResolveParams& params, int64_t query_row, int32_t position) {
  const int32_t sequence = params.sequence_of_row(query_row);
  const int32_t block = params.block_table(sequence, position / params.block_tokens);
  return int64_t{block} * params.block_tokens + position % params.block_tokens;
}

void count(int64_t* counters, int32_t sequence) {
  if (counters != nullptr) ++counters[sequence];
}

// Hits first: a row that is resident and wanted must be stamped before any miss looks for a victim.
void stamp_hits(const ResolveParams& params) {
  const RowCacheState& cache = params.cache;
  for (int64_t row = 0; row < params.selection.sizes[0]; ++row) {
    for (int64_t i = 0; i < params.selection.sizes[1]; ++i) {
      const int32_t position = params.selection(row, i);
      if (position < 0) {
        params.slots(row, i) = kAbsent;
        continue;
      }
      const int32_t slot = cache.slot_of(host_row_of(params, row, position));
      params.slots(row, i) = slot;
      if (slot == kAbsent) continue;
      if (cache.last_used(slot) != cache.head->tick) ++params.counters->hit;
      cache.last_used(slot) = cache.head->tick;
    }
  }
}

void fetch_misses(const ResolveParams& params) {
  const RowCacheState& cache = params.cache;
  int32_t num_misses = 0;
  for (int64_t row = 0; row < params.selection.sizes[0]; ++row) {
    for (int64_t i = 0; i < params.selection.sizes[1]; ++i) {
      const int32_t position = params.selection(row, i);
      if (position < 0) continue;
      ++params.counters->selected;
      count(params.selected_of_sequence, params.sequence_of_row(row));
      if (params.slots(row, i) != kAbsent) continue;
      const int64_t host_row = host_row_of(params, row, position);
      int32_t slot = cache.slot_of(host_row);
      if (slot == kAbsent) {
        slot = row_cache::take_slot(cache, cache.head->tick, &params.counters->evicted);
        DHS_CHECK(slot != kAbsent, "selection does not fit: ", cache.head->num_live, " live slots");
        row_cache::assign(cache, slot, host_row);
        params.misses(num_misses++) = {host_row, slot};
        count(params.missed_of_sequence, params.sequence_of_row(row));
      }
      params.slots(row, i) = slot;
    }
  }
  params.counters->missed += num_misses;
  *params.num_misses = num_misses;
}

// Takes the slots at or above `first` off the free ring.
void drop_free_slots(const RowCacheState& cache, int32_t first) {
  RowCacheHead& head = *cache.head;
  int32_t kept = 0;
  for (int32_t i = 0; i < head.num_free; ++i) {
    const int32_t slot = cache.free_ring(i);
    if (slot < first) cache.free_ring(kept++) = slot;
  }
  head.num_free = kept;
}

// Moves one row out of a slot that goes away, if a slot can be had for it.
void evacuate(const ReleaseParams& params, int32_t slot, int32_t target) {
  const RowCacheState& cache = params.cache;
  const int64_t host_row = cache.owner_of(slot);
  const uint32_t stamp = cache.last_used(slot);
  cache.owner_of(slot) = kNoOwner;
  cache.slot_of(host_row) = kAbsent;
  if (target == kAbsent) {
    ++*params.num_dropped;
    return;
  }
  row_cache::assign(cache, target, host_row);
  cache.last_used(target) = stamp;
  params.moves((*params.num_moves)++) = {slot, target};
}

// Protected rows first, so that no move's target is taken by a later one: orders are independent.
void evacuate_segment(const ReleaseParams& params, int32_t first, int32_t last) {
  const RowCacheState& cache = params.cache;
  for (int32_t slot = first; slot < last; ++slot) {
    if (cache.owner_of(slot) == kNoOwner || cache.last_used(slot) < params.protected_tick) continue;
    evacuate(params, slot, row_cache::take_slot(cache, params.protected_tick, params.num_dropped));
  }
  for (int32_t slot = first; slot < last; ++slot) {
    if (cache.owner_of(slot) == kNoOwner) continue;
    const bool has_free = cache.head->num_free > 0;
    evacuate(params, slot, has_free ? cache.free_ring(--cache.head->num_free) : kAbsent);
  }
}

const char* check_slot(const RowCacheState& cache, int32_t slot, int64_t* num_empty) {
  const int64_t owner = cache.owner_of(slot);
  if (owner == kNoOwner) {
    if (slot < cache.head->num_live) ++*num_empty;
    return nullptr;
  }
  if (slot >= cache.head->num_live) return "a slot without memory has an owner";
  if (owner < 0 || owner >= cache.slot_of.sizes[0]) return "owner_of names no host row";
  if (cache.slot_of(owner) != slot) return "owner_of and slot_of disagree";
  return nullptr;
}

// With as many entries as there are empty slots, "each entry empty and none twice" means "each
// once".
const char* check_free_ring(const RowCacheState& cache) {
  std::vector<bool> seen(static_cast<size_t>(cache.head->num_live));
  for (int32_t i = 0; i < cache.head->num_free; ++i) {
    const int32_t slot = cache.free_ring(i);
    if (slot < 0 || slot >= cache.head->num_live)
      return "the free ring names a slot without memory";
    if (cache.owner_of(slot) != kNoOwner) return "the free ring names an owned slot";
    if (seen[slot]) return "the free ring names a slot twice";
    seen[slot] = true;
  }
  return nullptr;
}

}  // namespace

void launch_resolve(const ResolveParams& params, Stream) {
  row_cache::begin_pass(params.cache);
  stamp_hits(params);
  fetch_misses(params);
}

void launch_claim(const ClaimParams& params, Stream) {
  const RowCacheState& cache = params.cache;
  row_cache::begin_pass(cache);
  for (int64_t i = 0; i < params.host_rows.sizes[0]; ++i) {
    const int64_t host_row = params.host_rows(i);
    int32_t slot = cache.slot_of(host_row);
    if (slot == kAbsent) {
      slot = row_cache::take_slot(cache, cache.head->tick, &params.counters->evicted);
      if (slot == kAbsent) return;
      row_cache::assign(cache, slot, host_row);
    }
    // Past the next pass's tick: out of its reach, yet not taken for a row it has stamped already.
    cache.last_used(slot) = cache.head->tick + (params.protect_in_next_pass ? 2 : 0);
  }
}

void launch_invalidate(const RowCacheState& cache, int64_t first_host_row, int64_t num_rows,
                       Stream) {
  for (int64_t row = first_host_row; row < first_host_row + num_rows; ++row) {
    const int32_t slot = cache.slot_of(row);
    if (slot != kAbsent) row_cache::free_slot(cache, slot);
  }
}

void launch_add_segment(const RowCacheState& cache, Stream) {
  RowCacheHead& head = *cache.head;
  const int32_t first = head.num_live;
  head.num_live += cache.slots_per_segment;
  DHS_CHECK(head.num_live <= cache.owner_of.sizes[0], "more segments than the cache has slots for");
  // Pushed in falling order, so that slots are handed out in rising order.
  for (int32_t slot = head.num_live - 1; slot >= first; --slot) {
    DHS_CHECK(cache.owner_of(slot) == kNoOwner, "slot ", slot, " is owned already");
    cache.last_used(slot) = 0;
    cache.free_ring(head.num_free++) = slot;
  }
}

void launch_release_segment(const ReleaseParams& params, Stream) {
  const RowCacheState& cache = params.cache;
  RowCacheHead& head = *cache.head;
  const int32_t last = head.num_live;
  const int32_t first = last - cache.slots_per_segment;
  DHS_CHECK(first >= 0, "no segment to release");
  head.num_live = first;
  *params.num_moves = 0;
  drop_free_slots(cache, first);
  evacuate_segment(params, first, last);
}

const char* check_row_cache(const RowCacheState& cache) {
  int64_t num_empty = 0;
  for (int32_t slot = 0; slot < cache.owner_of.sizes[0]; ++slot) {
    if (const char* fault = check_slot(cache, slot, &num_empty)) return fault;
  }
  if (num_empty != cache.head->num_free) return "an empty slot is not in the free ring";
  if (const char* fault = check_free_ring(cache)) return fault;
  for (int64_t row = 0; row < cache.slot_of.sizes[0]; ++row) {
    const int32_t slot = cache.slot_of(row);
    if (slot != kAbsent && cache.owner_of(slot) != row) return "slot_of and owner_of disagree";
  }
  return nullptr;
}

}  // namespace dhs
