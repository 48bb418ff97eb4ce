#include "kernels/resolve/row_cache.h"

#include <algorithm>

#include "kernels/resolve/policy.h"

namespace dhs::row_cache {
namespace {

bool is_evictable(const RowCacheState& cache, int32_t slot, uint32_t limit) {
  return cache.last_used(slot) < limit && cache.owner_of(slot) != kNoOwner;
}

void empty_slot(const RowCacheState& cache, int32_t slot) {
  cache.slot_of(cache.owner_of(slot)) = kAbsent;
  cache.owner_of(slot) = kNoOwner;
}

// Victims are evicted in the order of their classes, and remembered in that of their numbers.
class Evictions {
 public:
  Evictions(const RowCacheState& cache, int64_t num_victims)
      : cache_(cache),
        first_(cache.head->num_evicted),
        last_(cache.head->num_evicted + num_victims) {}
  ~Evictions() { cache_.head->num_evicted = last_; }

  void evict(int64_t victim, int32_t slot) {
    remember(victim, cache_.owner_of(slot), cache_.last_used(slot));
    empty_slot(cache_, slot);
  }
  void skip(int64_t victim) { remember(victim, kNoOwner, 0); }

 private:
  void remember(int64_t victim, int64_t host_row, uint32_t stamp) {
    const int64_t entry = ring_entry(cache_.evicted_rows.sizes[0], first_ + victim, last_);
    if (entry == kAbsent) return;
    cache_.evicted_rows(entry) = host_row;
    cache_.evicted_stamps(entry) = stamp;
  }

  const RowCacheState& cache_;
  const int64_t first_;
  const int64_t last_;
};

// The `wanted` oldest of one class's evictable slots, by rising stamp.
struct VictimClass {
  struct Candidate {
    uint32_t stamp;
    int32_t slot;
  };
  int wanted = 0;
  uint32_t limit = 0;  // only older slots are of any use
  int num_candidates = 0;
  Candidate candidates[kNumCandidates];

  void add(Candidate added) {
    int place = num_candidates == wanted ? wanted - 1 : num_candidates++;
    for (; place > 0 && candidates[place - 1].stamp > added.stamp; --place) {
      candidates[place] = candidates[place - 1];
    }
    candidates[place] = added;
    if (num_candidates == wanted) limit = candidates[wanted - 1].stamp;
  }
};

VictimClass class_at(const RowCacheState& cache, uint32_t limit, int64_t first, int32_t wanted) {
  const int32_t num_live = cache.head->num_live;
  const int32_t stride = victim_stride(num_live);
  VictimClass found;
  found.wanted = std::min<int32_t>(wanted, kNumCandidates);
  found.limit = limit;
  if (num_live == 0) return found;
  auto slot = static_cast<int32_t>(first % num_live);
  for (int32_t c = 0; c < std::min<int32_t>(kNumCandidates, num_live); ++c) {
    if (is_evictable(cache, slot, found.limit)) found.add({cache.last_used(slot), slot});
    slot += stride;
    if (slot >= num_live) slot -= num_live;
  }
  return found;
}

// The victims that no class could give. The only loop over the capacity, and only under pressure.
// Returns how many are still missing.
int64_t fill_deficits(const RowCacheState& cache, uint32_t limit, TensorView<int32_t, 1> victims,
                      Evictions& evictions) {
  int32_t slot = 0;
  int64_t num_short = 0;
  for (int64_t v = 0; v < victims.sizes[0]; ++v) {
    if (victims(v) != kAbsent) continue;
    while (slot < cache.head->num_live && !is_evictable(cache, slot, limit)) ++slot;
    if (slot == cache.head->num_live) {
      evictions.skip(v);
      ++num_short;
      continue;
    }
    evictions.evict(v, slot);
    victims(v) = slot;
  }
  return num_short;
}

// Returns how many there were.
int64_t choose_victims(const RowCacheState& cache, uint32_t limit, TensorView<int32_t, 1> victims) {
  RowCacheHead& head = *cache.head;
  const auto num_victims = static_cast<int32_t>(victims.sizes[0]);
  const int32_t stride = victim_stride(head.num_live);
  Evictions evictions(cache, num_victims);
  bool is_short = false;
  for (int32_t j = 0; j < std::min(num_victims, stride); ++j) {
    const int32_t wanted = victims_of_class(num_victims, j, stride);
    const VictimClass found = class_at(cache, limit, int64_t{head.hand} + j, wanted);
    int taken = 0;
    for (int64_t v = j; v < num_victims; v += stride) {
      if (taken == found.num_candidates) {
        victims(v) = kAbsent;
        is_short = true;
        continue;
      }
      victims(v) = found.candidates[taken++].slot;
      evictions.evict(v, victims(v));
    }
  }
  const int64_t num_short = is_short ? fill_deficits(cache, limit, victims, evictions) : 0;
  if (head.num_live > 0) {
    head.hand = static_cast<int32_t>((int64_t{head.hand} + num_victims) % head.num_live);
  }
  return num_victims - num_short;
}

}  // namespace

void begin_pass(const RowCacheState& cache) { ++cache.head->tick; }

void end_pass(const RowCacheState& cache) {
  RowCacheHead& head = *cache.head;
  if (head.tick < kLastTick) return;
  std::fill_n(cache.last_used.data, head.num_live, 0u);
  std::fill_n(cache.evicted_stamps.data, cache.evicted_stamps.sizes[0], 0u);
  head.tick = 0;
  head.step_tick = 1;
}

int64_t take_slots(const RowCacheState& cache, uint32_t limit, TensorView<int32_t, 1> slots) {
  RowCacheHead& head = *cache.head;
  const int64_t num_from_free = std::min<int64_t>(slots.sizes[0], head.num_free);
  for (int64_t i = 0; i < num_from_free; ++i) slots(i) = cache.free_ring(--head.num_free);
  const int64_t num_victims = slots.sizes[0] - num_from_free;
  if (num_victims == 0) return 0;
  return choose_victims(cache, limit,
                        {slots.row(num_from_free), {num_victims}, {slots.strides[0]}});
}

void assign(const RowCacheState& cache, int32_t slot, int64_t host_row, uint32_t stamp) {
  cache.owner_of(slot) = host_row;
  cache.slot_of(host_row) = slot;
  cache.last_used(slot) = stamp;
}

void drop_row(const RowCacheState& cache, int32_t slot) { Evictions(cache, 1).evict(0, slot); }

void free_slot(const RowCacheState& cache, int32_t slot) {
  empty_slot(cache, slot);
  cache.free_ring(cache.head->num_free++) = slot;
}

}  // namespace dhs::row_cache
