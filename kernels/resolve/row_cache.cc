#include "kernels/resolve/row_cache.h"

#include <algorithm>

#include "dhisparse/base.h"

namespace dhs::row_cache {
namespace {

// The oldest of kNumCandidates evictable slots a stride apart; looks further only where the sample
// holds none. kAbsent when no live slot is older than `protected_tick`.
int32_t choose_victim(const RowCacheState& cache, uint32_t protected_tick) {
  const int32_t num_slots = cache.head->num_live;
  const int32_t stride = std::max(1, num_slots / kNumCandidates);
  int32_t slot = cache.head->hand % num_slots;
  int32_t victim = kAbsent;
  for (int32_t looked = 0; looked < num_slots; ++looked) {
    if (looked >= kNumCandidates && victim != kAbsent) break;
    const uint32_t stamp = cache.last_used(slot);
    if (stamp < protected_tick && (victim == kAbsent || stamp < cache.last_used(victim))) {
      victim = slot;
    }
    slot += stride;
    // One slot further on each lap, so that successive laps cover every slot.
    if (slot >= num_slots) slot = (slot % stride + 1) % stride;
  }
  cache.head->hand = (cache.head->hand + 1) % num_slots;
  return victim;
}

}  // namespace

void begin_pass(const RowCacheState& cache) {
  RowCacheHead& head = *cache.head;
  if (head.tick == UINT32_MAX) {
    std::fill_n(cache.last_used.data, head.num_live, 0u);
    head.tick = 0;
  }
  ++head.tick;
}

void assign(const RowCacheState& cache, int32_t slot, int64_t host_row) {
  cache.owner_of(slot) = host_row;
  cache.slot_of(host_row) = slot;
  cache.last_used(slot) = cache.head->tick;
}

int32_t take_slot(const RowCacheState& cache, uint32_t protected_tick, int64_t* evicted) {
  RowCacheHead& head = *cache.head;
  if (head.num_free > 0) return cache.free_ring(--head.num_free);
  if (head.num_live == 0) return kAbsent;
  const int32_t victim = choose_victim(cache, protected_tick);
  if (victim == kAbsent) return kAbsent;
  cache.slot_of(cache.owner_of(victim)) = kAbsent;
  cache.owner_of(victim) = kNoOwner;
  ++*evicted;
  return victim;
}

void free_slot(const RowCacheState& cache, int32_t slot) {
  cache.slot_of(cache.owner_of(slot)) = kAbsent;
  cache.owner_of(slot) = kNoOwner;
  cache.free_ring(cache.head->num_free++) = slot;
}

}  // namespace dhs::row_cache
