// The victim choice of resolve.h, in parallel: a class is one warp's work, a candidate one lane's,
// and no two classes share a slot, so each evicts its own at once. What classes could not give, one
// block finds afterwards.
#pragma once

#include "kernels/resolve/block_count.cuh"
#include "kernels/resolve/policy.h"
#include "kernels/resolve/resolve.h"

namespace dhs::row_cache {

struct VictimChoice {
  RowCacheState cache;
  uint32_t limit = 0;  // slots stamped before it are evictable
  int32_t num_live = 0;
  int32_t hand = 0;
  int32_t num_victims = 0;
  TensorView<int32_t, 1> slots;  // out: [num_victims]
  int64_t num_evicted = 0;       // before this choice
};

__device__ inline bool is_evictable(const VictimChoice& choice, int32_t slot) {
  return choice.cache.owner_of(slot) != kNoOwner && choice.cache.last_used(slot) < choice.limit;
}

__device__ inline void empty_slot(const RowCacheState& cache, int32_t slot) {
  cache.slot_of(cache.owner_of(slot)) = kAbsent;
  cache.owner_of(slot) = kNoOwner;
}

struct EvictedRow {
  int64_t host_row = kNoOwner;
  uint32_t stamp = 0;
};

// Enters evicted row `number` into the ring; `last` is the one behind the last of those that are
// entered without a barrier between them.
__device__ inline void remember(const RowCacheState& cache, int64_t number, int64_t last,
                                const EvictedRow& row) {
  const int64_t entry = ring_entry(cache.evicted_rows.sizes[0], number, last);
  if (entry == kAbsent) return;
  cache.evicted_rows(entry) = row.host_row;
  cache.evicted_stamps(entry) = row.stamp;
}

__device__ inline void remember_victim(const VictimChoice& choice, int64_t victim,
                                       const EvictedRow& row) {
  const int64_t last = choice.num_evicted + choice.num_victims;
  remember(choice.cache, choice.num_evicted + victim, last, row);
}

__device__ inline void give_victim(const VictimChoice& choice, int64_t victim, int32_t slot) {
  remember_victim(choice, victim, {choice.cache.owner_of(slot), choice.cache.last_used(slot)});
  empty_slot(choice.cache, slot);
  choice.slots(victim) = slot;
}

static_assert(kNumCandidates == 32, "a candidate is one lane's");
inline constexpr uint32_t kNotEvictable = UINT32_MAX;  // above any stamp older than a limit

// This lane's candidate of the class that begins at `first`, or kAbsent.
__device__ inline int32_t candidate_at(const VictimChoice& choice, int64_t first, int32_t stride) {
  const int c = lane_idx();
  if (c >= choice.num_live) return kAbsent;
  return static_cast<int32_t>((first + int64_t{c} * stride) % choice.num_live);
}

// This warp's class j. Writes its victims, kAbsent for those it cannot give, and returns how many
// those are (in the first lane, 0 in the others).
__device__ inline int32_t choose_in_class(const VictimChoice& choice, int32_t j, int32_t stride) {
  const int32_t slot = candidate_at(choice, int64_t{choice.hand} + j, stride);
  uint32_t stamp = kNotEvictable;
  if (slot != kAbsent && is_evictable(choice, slot)) stamp = choice.cache.last_used(slot);
  const int32_t wanted = victims_of_class(choice.num_victims, j, stride);
  int32_t num_given = 0;
  for (; num_given < wanted; ++num_given) {
    const uint32_t oldest = __reduce_min_sync(kAllLanes, stamp);
    if (oldest == kNotEvictable) break;
    const unsigned votes = __ballot_sync(kAllLanes, stamp == oldest);
    if (stamp != oldest || votes_before(votes) != 0) continue;
    give_victim(choice, j + int64_t{num_given} * stride, slot);
    stamp = kNotEvictable;
  }
  for (int32_t i = num_given + lane_idx(); i < wanted; i += kNumCandidates) {
    remember_victim(choice, j + int64_t{i} * stride, {});
    choice.slots(j + int64_t{i} * stride) = kAbsent;
  }
  return lane_idx() == 0 ? wanted - num_given : 0;
}

// Warp `warp` of `num` does its part of the classes. The sum over all lanes of all warps is the
// number of victims left to fill_deficits.
__device__ inline int32_t choose_in_classes(const VictimChoice& choice, int warp, int num) {
  const int32_t stride = victim_stride(choice.num_live);
  const int32_t num_classes = choice.num_victims < stride ? choice.num_victims : stride;
  int32_t num_deficits = 0;
  for (int32_t j = warp; j < num_classes; j += num) {
    num_deficits += choose_in_class(choice, j, stride);
  }
  return num_deficits;
}

// Uses of `shared` and of slots evicted before are kept apart by rank_in_block's barriers.
// shared.slots = the first `wanted` evictable slots from `cursor` on, or as many as there are: that
// number is returned, and `cursor` stands behind the last of them.
__device__ inline int32_t collect_evictable(const VictimChoice& choice, int32_t wanted,
                                            int32_t& cursor, BlockShared& shared) {
  int32_t num_collected = 0;
  while (num_collected < wanted && cursor < choice.num_live) {
    const int32_t slot = cursor + thread_idx();
    const bool is_found = slot < choice.num_live && is_evictable(choice, slot);
    const Rank rank = rank_in_block(is_found, shared);
    const int32_t place = num_collected + rank.before;
    if (is_found && place < wanted) shared.slots[place] = slot;
    if (is_found && place == wanted - 1) shared.cursor = slot + 1;
    __syncthreads();
    num_collected += rank.total;
    cursor = num_collected >= wanted ? shared.cursor : cursor + num_threads();
  }
  return num_collected < wanted ? num_collected : wanted;
}

// One block; a barrier must follow before others read the slots. Returns how many victims do not
// exist: their slots stay kAbsent.
__device__ inline int32_t fill_deficits(const VictimChoice& choice, int32_t num_deficits,
                                        BlockShared& shared) {
  int32_t num_short = 0;
  int32_t cursor = 0;
  for (int32_t first = 0; first < choice.num_victims && num_deficits > 0; first += num_threads()) {
    const int32_t victim = first + thread_idx();
    const bool is_open = victim < choice.num_victims && choice.slots(victim) == kAbsent;
    const Rank rank = rank_in_block(is_open, shared);
    if (rank.total == 0) continue;
    const int32_t num_collected = collect_evictable(choice, rank.total, cursor, shared);
    if (is_open && rank.before < num_collected) {
      give_victim(choice, victim, shared.slots[rank.before]);
    }
    num_deficits -= rank.total;
    num_short += rank.total - num_collected;
  }
  return num_short;
}

}  // namespace dhs::row_cache
