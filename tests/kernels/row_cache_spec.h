// The passes of kernels/resolve/resolve.h, written as literally as its header reads and with no
// thought for speed: what the CPU version is held to.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/resolve/policy.h"
#include "kernels/resolve/resolve.h"

namespace dhs::test {

struct SpecPasses {
  static bool is_evictable(const RowCacheState& cache, int32_t slot, uint32_t limit) {
    return cache.owner_of(slot) != kNoOwner && cache.last_used(slot) < limit;
  }
  static void empty_slot(const RowCacheState& cache, int32_t slot) {
    cache.slot_of(cache.owner_of(slot)) = kAbsent;
    cache.owner_of(slot) = kNoOwner;
  }
  static void give(const RowCacheState& cache, int32_t slot, int64_t host_row, uint32_t stamp) {
    cache.owner_of(slot) = host_row;
    cache.slot_of(host_row) = slot;
    cache.last_used(slot) = stamp;
  }

  // As the latest evicted row.
  static void remember(const RowCacheState& cache, int64_t host_row, uint32_t stamp) {
    const int64_t number = cache.head->num_evicted++;
    if (cache.evicted_rows.sizes[0] == 0) return;
    cache.evicted_rows(number % cache.evicted_rows.sizes[0]) = host_row;
    cache.evicted_stamps(number % cache.evicted_rows.sizes[0]) = stamp;
  }

  // Victim number -> slot, for those that exist. Evicts nothing yet.
  static std::map<int64_t, int32_t> victims(const RowCacheState& cache, uint32_t limit, int64_t n) {
    const int64_t num_live = cache.head->num_live;
    const int64_t stride = std::max<int64_t>(1, num_live / kNumCandidates);
    std::map<int64_t, int32_t> chosen;
    std::set<int32_t> taken;
    for (int64_t j = 0; j < std::min(n, stride); ++j) {
      std::vector<std::tuple<uint32_t, int64_t, int32_t>> candidates;
      for (int64_t c = 0; c < std::min<int64_t>(kNumCandidates, num_live); ++c) {
        const auto slot = static_cast<int32_t>((cache.head->hand + j + c * stride) % num_live);
        if (is_evictable(cache, slot, limit)) {
          candidates.push_back({cache.last_used(slot), c, slot});
        }
      }
      std::sort(candidates.begin(), candidates.end());
      for (size_t i = 0; i < candidates.size(); ++i) {
        const int64_t victim = j + static_cast<int64_t>(i) * stride;
        if (victim >= n) break;
        chosen[victim] = std::get<2>(candidates[i]);
        taken.insert(chosen[victim]);
      }
    }
    std::vector<int32_t> rest;
    for (int32_t slot = 0; slot < num_live; ++slot) {
      if (is_evictable(cache, slot, limit) && !taken.count(slot)) rest.push_back(slot);
    }
    size_t next = 0;
    for (int64_t victim = 0; victim < n && next < rest.size(); ++victim) {
      if (!chosen.count(victim)) chosen[victim] = rest[next++];
    }
    return chosen;
  }

  static std::vector<int32_t> take(const RowCacheState& cache, uint32_t limit, int64_t wanted,
                                   int64_t* num_evicted) {
    std::vector<int32_t> slots;
    while (static_cast<int64_t>(slots.size()) < wanted && cache.head->num_free > 0) {
      slots.push_back(cache.free_ring(--cache.head->num_free));
    }
    const int64_t n = wanted - static_cast<int64_t>(slots.size());
    if (n == 0) return slots;
    const std::map<int64_t, int32_t> chosen = victims(cache, limit, n);
    for (int64_t victim = 0; victim < n; ++victim) {
      const auto found = chosen.find(victim);
      slots.push_back(found == chosen.end() ? kAbsent : found->second);
      const int32_t slot = slots.back();
      if (slot == kAbsent) remember(cache, kNoOwner, 0);
      if (slot != kAbsent) remember(cache, cache.owner_of(slot), cache.last_used(slot));
    }
    for (const auto& [victim, slot] : chosen) empty_slot(cache, slot);
    *num_evicted += static_cast<int64_t>(chosen.size());
    const int64_t num_live = cache.head->num_live;
    if (num_live > 0) cache.head->hand = static_cast<int32_t>((cache.head->hand + n) % num_live);
    return slots;
  }

  static void end_pass(const RowCacheState& cache) {
    if (cache.head->tick < row_cache::kLastTick) return;
    for (int32_t slot = 0; slot < cache.head->num_live; ++slot) cache.last_used(slot) = 0;
    for (int64_t i = 0; i < cache.evicted_stamps.sizes[0]; ++i) cache.evicted_stamps(i) = 0;
    cache.head->tick = 0;
    cache.head->step_tick = 1;
  }

  // The host row of every entry, -1 for padding.
  static std::vector<int64_t> wanted_rows(const ResolveParams& params) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < params.selection.sizes[0]; ++row) {
      for (int64_t i = 0; i < params.selection.sizes[1]; ++i) {
        const int32_t position = params.selection(row, i);
        const int32_t block = position < 0 ? 0
                                           : params.block_table(params.sequence_of_row(row),
                                                                position / params.block_tokens);
        rows.push_back(position < 0
                           ? -1
                           : int64_t{block} * params.block_tokens + position % params.block_tokens);
      }
    }
    return rows;
  }

  static void run(const ResolveParams& params) {
    const RowCacheState& cache = params.cache;
    const uint32_t tick = ++cache.head->tick;
    const int64_t top_k = params.selection.sizes[1];
    const std::vector<int64_t> rows = wanted_rows(params);
    std::vector<int64_t> missing;
    std::map<int64_t, int32_t> order_of;
    for (size_t e = 0; e < rows.size(); ++e) {
      if (rows[e] < 0) continue;
      const int32_t sequence = params.sequence_of_row(static_cast<int64_t>(e) / top_k);
      ++params.counters->selected;
      ++params.selected_of_sequence[sequence];
      const int32_t slot = cache.slot_of(rows[e]);
      if (slot != kAbsent) {
        params.counters->hit += cache.last_used(slot) != tick ? 1 : 0;
        cache.last_used(slot) = tick;
      } else if (order_of.emplace(rows[e], static_cast<int32_t>(missing.size())).second) {
        missing.push_back(rows[e]);
        ++params.missed_of_sequence[sequence];
      }
    }
    const auto num_missing = static_cast<int32_t>(missing.size());
    const std::vector<int32_t> slots = take(cache, tick, num_missing, &params.counters->evicted);
    for (int32_t i = 0; i < num_missing; ++i) {
      give(cache, slots[i], missing[i], tick);
      params.misses(i) = {missing[i], slots[i]};
    }
    params.counters->missed += num_missing;
    *params.num_misses = num_missing;
    std::set<int64_t> named;
    for (size_t e = 0; e < rows.size(); ++e) {
      const int64_t row = static_cast<int64_t>(e) / top_k, i = static_cast<int64_t>(e) % top_k;
      params.slots(row, i) = rows[e] < 0 ? kAbsent : cache.slot_of(rows[e]);
      const auto order = order_of.find(rows[e]);
      params.miss_of(row, i) =
          order == order_of.end() ? -1 : 2 * order->second + (named.insert(rows[e]).second ? 1 : 0);
    }
    end_pass(cache);
  }

  static void run(const ClaimParams& params) {
    const RowCacheState& cache = params.cache;
    const uint32_t tick = ++cache.head->tick;
    const uint32_t stamp = tick + (params.protect_in_next_pass ? 2 : 0);
    std::vector<int64_t> missing;
    for (int64_t i = 0; i < params.host_rows.sizes[0]; ++i) {
      const int64_t row = params.host_rows(i);
      if (row < 0) continue;
      const int32_t slot = cache.slot_of(row);
      if (slot == kAbsent) missing.push_back(row);
      if (slot != kAbsent) cache.last_used(slot) = stamp;
    }
    const std::vector<int32_t> slots =
        take(cache, tick, static_cast<int64_t>(missing.size()), &params.counters->evicted);
    for (size_t i = 0; i < missing.size(); ++i) {
      if (slots[i] != kAbsent) give(cache, slots[i], missing[i], stamp);
    }
    end_pass(cache);
  }

  static void run(const InvalidateParams& params) {
    const RowCacheState& cache = params.cache;
    for (int64_t i = 0; i < params.blocks.sizes[0]; ++i) {
      for (int64_t offset = 0; offset < params.block_tokens; ++offset) {
        const int64_t row = int64_t{params.blocks(i)} * params.block_tokens + offset;
        const int32_t slot = cache.slot_of(row);
        if (slot == kAbsent) continue;
        empty_slot(cache, slot);
        cache.free_ring(cache.head->num_free++) = slot;
      }
      if (cache.evicted_before.sizes[0] == 0) continue;
      cache.evicted_before(params.blocks(i)) = cache.head->num_evicted;
    }
  }

  static void run(const RefillParams& params) {
    const RowCacheState& cache = params.cache;
    RowCacheHead& head = *cache.head;
    *params.num_orders = 0;
    for (int64_t number = head.num_evicted - 1; number >= 0; --number) {
      const int64_t ring_size = cache.evicted_rows.sizes[0];
      if (number < head.num_evicted - ring_size || head.num_free == 0) return;
      if (*params.num_orders == params.orders.sizes[0]) return;
      const int64_t row = cache.evicted_rows(number % ring_size);
      if (row == kNoOwner || cache.slot_of(row) != kAbsent) continue;
      if (cache.evicted_before(row / params.block_tokens) > number) continue;
      const int32_t slot = cache.free_ring(--head.num_free);
      give(cache, slot, row, cache.evicted_stamps(number % ring_size));
      params.orders((*params.num_orders)++) = {row, slot};
      ++*params.num_refilled;
    }
  }

  static void add(const SegmentParams& params) {
    RowCacheHead& head = *params.cache.head;
    const int32_t first = head.num_live;
    head.num_live += params.cache.slots_per_segment;
    for (int32_t slot = head.num_live - 1; slot >= first; --slot) {
      params.cache.last_used(slot) = 0;
      params.cache.free_ring(head.num_free++) = slot;
    }
  }
  static void begin(const SegmentParams& params) {
    params.cache.head->step_tick = params.cache.head->tick + 1;
  }
  static void reset(const SegmentParams& params) {
    const RowCacheState& cache = params.cache;
    for (int64_t i = 0; i < cache.slot_of.sizes[0]; ++i) cache.slot_of(i) = kAbsent;
    for (int64_t i = 0; i < cache.owner_of.sizes[0]; ++i) cache.owner_of(i) = kNoOwner;
    for (int64_t i = 0; i < cache.evicted_rows.sizes[0]; ++i) cache.evicted_rows(i) = kNoOwner;
    for (int64_t i = 0; i < cache.evicted_stamps.sizes[0]; ++i) cache.evicted_stamps(i) = 0;
    for (int64_t i = 0; i < cache.evicted_before.sizes[0]; ++i) cache.evicted_before(i) = 0;
    *cache.head = {};
  }

  static void move(const ReleaseParams& params, int32_t from, int32_t to) {
    const RowCacheState& cache = params.cache;
    const int64_t row = cache.owner_of(from);
    const uint32_t stamp = cache.last_used(from);
    empty_slot(cache, from);
    *params.num_dropped += to == kAbsent ? 1 : 0;
    if (to == kAbsent) remember(cache, row, stamp);
    if (to == kAbsent) return;
    give(cache, to, row, stamp);
    params.moves((*params.num_moves)++) = {from, to};
  }

  static void run(const ReleaseParams& params) {
    const RowCacheState& cache = params.cache;
    RowCacheHead& head = *cache.head;
    const int32_t last = head.num_live;
    head.num_live -= cache.slots_per_segment;
    std::vector<int32_t> ring;
    for (int32_t i = 0; i < head.num_free; ++i) {
      if (cache.free_ring(i) < head.num_live) ring.push_back(cache.free_ring(i));
    }
    std::copy(ring.begin(), ring.end(), cache.free_ring.data);
    head.num_free = static_cast<int32_t>(ring.size());
    std::vector<int32_t> hot, cold;
    for (int32_t slot = head.num_live; slot < last; ++slot) {
      if (cache.owner_of(slot) == kNoOwner) continue;
      (cache.last_used(slot) >= head.step_tick ? hot : cold).push_back(slot);
    }
    *params.num_moves = 0;
    const std::vector<int32_t> targets =
        take(cache, head.step_tick, static_cast<int64_t>(hot.size()), params.num_dropped);
    for (size_t i = 0; i < hot.size(); ++i) move(params, hot[i], targets[i]);
    for (int32_t slot : cold) {
      const bool has_free = head.num_free > 0;
      move(params, slot, has_free ? cache.free_ring(--head.num_free) : kAbsent);
    }
  }
};

}  // namespace dhs::test
