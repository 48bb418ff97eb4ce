// The sequential form of every pass: the reference of the CUDA kernels and, since a pass is a small
// part of a CPU step, the CPU version too.
#include <algorithm>
#include <bit>
#include <vector>

#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/resolve/policy.h"
#include "kernels/resolve/resolve.h"
#include "kernels/resolve/row_cache.h"

namespace dhs {
namespace {

// The rows of a pass that are absent and the slots they get. Grown once, then reused.
struct Missing {
  std::vector<int64_t> host_rows;
  std::vector<int32_t> slots;

  void clear() { host_rows.clear(); }
  TensorView<int32_t, 1> slots_to_fill() {
    if (slots.size() < host_rows.size()) slots.resize(host_rows.size());
    return view(slots.data(), host_rows.size());
  }
};

// Between the phases slot_of and slots hold this for a row that has become order `i`.
constexpr int32_t code_of_order(int32_t i) { return kAbsent - 1 - i; }

void count(int64_t* counters, int32_t sequence, int64_t more) {
  if (counters != nullptr) counters[sequence] += more;
}

// Positions of one sequence as host rows.
class HostRows {
 public:
  HostRows(const ResolveParams& params, int32_t sequence)
      : blocks_(&params.block_table(sequence, 0)),
        stride_(params.block_table.strides[1]),
        shift_(std::countr_zero(static_cast<uint32_t>(params.block_tokens))),
        mask_(params.block_tokens - 1) {}

  int64_t of(int32_t position) const {
    return (int64_t{blocks_[(position >> shift_) * stride_]} << shift_) + (position & mask_);
  }

 private:
  const int32_t* blocks_;
  int64_t stride_;
  int shift_;
  int32_t mask_;
};

struct Entry {  // of the selection
  int32_t row;
  int32_t column;
};

// Phases 1 and 2 of a query row: hits are stamped, absent rows become orders without a slot yet.
void stamp_or_list(const ResolveParams& params, int32_t row, int32_t& num_misses,
                   std::vector<Entry>& missed) {
  const int32_t sequence = params.sequence_of_row(row);
  const HostRows host_rows(params, sequence);
  const uint32_t tick = params.cache.head->tick;
  const int32_t first_miss = num_misses;
  int64_t num_selected = 0;
  int64_t num_hit = 0;
  const auto top_k = static_cast<int32_t>(params.selection.sizes[1]);
  const int32_t* selection = params.selection.row(row);
  int32_t* slots = params.slots.row(row);
  int32_t* slot_of = params.cache.slot_of.data;
  uint32_t* last_used = params.cache.last_used.data;
  if (params.miss_of.data != nullptr) std::fill_n(params.miss_of.row(row), top_k, -1);
  for (int32_t i = 0; i < top_k; ++i) {
    slots[i] = kAbsent;
    if (selection[i] < 0) continue;
    ++num_selected;
    const int64_t host_row = host_rows.of(selection[i]);
    const int32_t slot = slot_of[host_row];
    slots[i] = slot;
    if (slot >= 0) {
      num_hit += last_used[slot] != tick ? 1 : 0;
      last_used[slot] = tick;
      continue;
    }
    if (slot == kAbsent) {
      slots[i] = slot_of[host_row] = code_of_order(num_misses);
      params.misses(num_misses++) = {host_row, kAbsent};
    }
    missed.push_back({row, i});
  }
  params.counters->selected += num_selected;
  params.counters->hit += num_hit;
  count(params.selected_of_sequence, sequence, num_selected);
  count(params.missed_of_sequence, sequence, num_misses - first_miss);
}

// Phase 3 and 4: every order gets a slot, and every slot its new owner.
void place_misses(const ResolveParams& params, int32_t num_misses) {
  if (num_misses == 0) return;
  const RowCacheState& cache = params.cache;
  constexpr int64_t kStride = sizeof(FetchOrder) / sizeof(int32_t);
  const TensorView<int32_t, 1> slots = {
      &params.misses.data->slot, {num_misses}, {params.misses.strides[0] * kStride}};
  params.counters->evicted += row_cache::take_slots(cache, cache.head->tick, slots);
  for (int32_t i = 0; i < num_misses; ++i) {
    const FetchOrder& order = params.misses(i);
    DHS_CHECK(order.slot != kAbsent, "selection does not fit: ", cache.head->num_live,
              " live slots, ", num_misses, " misses");
    row_cache::assign(cache, order.slot, order.host_row, cache.head->tick);
  }
}

// Orders appear in the order in which the entries name them first.
void write_missed(const ResolveParams& params, const std::vector<Entry>& missed) {
  int32_t num_named = 0;
  for (const Entry& entry : missed) {
    int32_t& slot = params.slots(entry.row, entry.column);
    const int32_t order = code_of_order(slot);
    const bool is_first = order == num_named;
    num_named += is_first ? 1 : 0;
    slot = params.misses(order).slot;
    if (params.miss_of.data == nullptr) continue;
    params.miss_of(entry.row, entry.column) = 2 * order + (is_first ? 1 : 0);
  }
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

// Moves one row out of a slot that goes away, if a slot was had for it.
void evacuate(const ReleaseParams& params, int32_t slot, int32_t target) {
  const RowCacheState& cache = params.cache;
  if (target == kAbsent) {
    row_cache::drop_row(cache, slot);
    ++*params.num_dropped;
    return;
  }
  row_cache::assign(cache, target, cache.owner_of(slot), cache.last_used(slot));
  cache.owner_of(slot) = kNoOwner;
  params.moves((*params.num_moves)++) = {slot, target};
}

// Protected rows first, so that no move's target is taken by a later one: orders are independent.
void evacuate_segment(const ReleaseParams& params, int32_t first, int32_t last) {
  static thread_local std::vector<int32_t> sources;
  static thread_local std::vector<int32_t> targets;
  const RowCacheState& cache = params.cache;
  sources.clear();
  for (int32_t slot = first; slot < last; ++slot) {
    const bool is_protected = cache.last_used(slot) >= cache.head->step_tick;
    if (cache.owner_of(slot) != kNoOwner && is_protected) sources.push_back(slot);
  }
  targets.resize(sources.size());
  *params.num_dropped +=
      row_cache::take_slots(cache, cache.head->step_tick, view(targets.data(), targets.size()));
  for (size_t i = 0; i < sources.size(); ++i) evacuate(params, sources[i], targets[i]);
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

const char* check_evicted_rows(const RowCacheState& cache) {
  const int64_t ring_size = cache.evicted_rows.sizes[0];
  if ((ring_size & (ring_size - 1)) != 0) return "the ring of evicted rows is no power of two";
  if (cache.evicted_stamps.sizes[0] != ring_size) return "evicted rows and stamps differ in number";
  for (int64_t entry = 0; entry < ring_size; ++entry) {
    const int64_t row = cache.evicted_rows(entry);
    if (row != kNoOwner && (row < 0 || row >= cache.slot_of.sizes[0])) {
      return "the ring of evicted rows names no host row";
    }
    if (row != kNoOwner && cache.evicted_stamps(entry) > cache.head->tick) {
      return "an evicted row has a stamp of a pass to come";
    }
  }
  return nullptr;
}

void launch_resolve_cpu(const ResolveParams& params) {
  static thread_local std::vector<Entry> missed;  // grown once, then reused
  missed.clear();
  row_cache::begin_pass(params.cache);
  int32_t num_misses = 0;
  const auto num_rows = static_cast<int32_t>(params.selection.sizes[0]);
  for (int32_t row = 0; row < num_rows; ++row) stamp_or_list(params, row, num_misses, missed);
  place_misses(params, num_misses);
  write_missed(params, missed);
  params.counters->missed += num_misses;
  *params.num_misses = num_misses;
  row_cache::end_pass(params.cache);
}

void launch_claim_cpu(const ClaimParams& params) {
  static thread_local Missing missing;
  const RowCacheState& cache = params.cache;
  row_cache::begin_pass(cache);
  const uint32_t stamp =
      cache.head->tick + (params.protect_in_next_pass ? row_cache::kProtectedAhead : 0);
  missing.clear();
  for (int64_t i = 0; i < params.host_rows.sizes[0]; ++i) {
    const int64_t host_row = params.host_rows(i);
    if (host_row < 0) continue;
    const int32_t slot = cache.slot_of(host_row);
    if (slot == kAbsent) {
      missing.host_rows.push_back(host_row);
    } else {
      cache.last_used(slot) = stamp;
    }
  }
  params.counters->evicted +=
      row_cache::take_slots(cache, cache.head->tick, missing.slots_to_fill());
  for (size_t i = 0; i < missing.host_rows.size(); ++i) {
    if (missing.slots[i] == kAbsent) continue;
    row_cache::assign(cache, missing.slots[i], missing.host_rows[i], stamp);
  }
  row_cache::end_pass(cache);
}

void launch_invalidate_cpu(const InvalidateParams& params) {
  const RowCacheState& cache = params.cache;
  for (int64_t i = 0; i < params.blocks.sizes[0]; ++i) {
    const int64_t first = int64_t{params.blocks(i)} * params.block_tokens;
    for (int64_t row = first; row < first + params.block_tokens; ++row) {
      const int32_t slot = cache.slot_of(row);
      if (slot != kAbsent) row_cache::free_slot(cache, slot);
    }
    if (cache.evicted_before.sizes[0] > 0) {
      cache.evicted_before(params.blocks(i)) = cache.head->num_evicted;
    }
  }
}

void launch_refill_cpu(const RefillParams& params) {
  const RowCacheState& cache = params.cache;
  RowCacheHead& head = *cache.head;
  const int64_t ring_size = cache.evicted_rows.sizes[0];
  const int64_t num_wanted = std::min<int64_t>(params.orders.sizes[0], head.num_free);
  int32_t num_orders = 0;
  for (int64_t age = 1; age <= std::min(ring_size, head.num_evicted); ++age) {
    if (num_orders == num_wanted) break;
    const int64_t number = head.num_evicted - age;
    const int64_t entry = number & (ring_size - 1);
    const int64_t host_row = cache.evicted_rows(entry);
    if (host_row == kNoOwner || cache.slot_of(host_row) != kAbsent) continue;
    if (number < cache.evicted_before(host_row / params.block_tokens)) continue;
    const int32_t slot = cache.free_ring(--head.num_free);
    row_cache::assign(cache, slot, host_row, cache.evicted_stamps(entry));
    params.orders(num_orders++) = {host_row, slot};
  }
  *params.num_orders = num_orders;
  *params.num_refilled += num_orders;
}

void launch_reset_row_cache_cpu(const SegmentParams& params) {
  const RowCacheState& cache = params.cache;
  std::fill_n(cache.slot_of.data, cache.slot_of.sizes[0], kAbsent);
  std::fill_n(cache.owner_of.data, cache.owner_of.sizes[0], kNoOwner);
  std::fill_n(cache.last_used.data, cache.last_used.sizes[0], 0u);
  std::fill_n(cache.evicted_rows.data, cache.evicted_rows.sizes[0], kNoOwner);
  std::fill_n(cache.evicted_stamps.data, cache.evicted_stamps.sizes[0], 0u);
  std::fill_n(cache.evicted_before.data, cache.evicted_before.sizes[0], int64_t{0});
  *cache.head = RowCacheHead{};
}

void launch_add_segment_cpu(const SegmentParams& params) {
  const RowCacheState& cache = params.cache;
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

void launch_begin_step_cpu(const SegmentParams& params) {
  params.cache.head->step_tick = params.cache.head->tick + 1;
}

void launch_release_segment_cpu(const ReleaseParams& params) {
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

}  // namespace

DHS_LAUNCHER(launch_resolve, ResolveParams)
DHS_LAUNCHER(launch_claim, ClaimParams)
DHS_LAUNCHER(launch_invalidate, InvalidateParams)
DHS_LAUNCHER(launch_refill, RefillParams)
DHS_LAUNCHER(launch_reset_row_cache, SegmentParams)
DHS_LAUNCHER(launch_add_segment, SegmentParams)
DHS_LAUNCHER(launch_begin_step, SegmentParams)
DHS_LAUNCHER(launch_release_segment, ReleaseParams)

const char* check_row_cache(const RowCacheState& cache) {
  int64_t num_empty = 0;
  if (cache.head->num_missing != 0) return "a pass has not ended";
  for (int32_t slot = 0; slot < cache.owner_of.sizes[0]; ++slot) {
    if (const char* fault = check_slot(cache, slot, &num_empty)) return fault;
  }
  if (num_empty != cache.head->num_free) return "an empty slot is not in the free ring";
  if (const char* fault = check_free_ring(cache)) return fault;
  if (const char* fault = check_evicted_rows(cache)) return fault;
  for (int64_t row = 0; row < cache.slot_of.sizes[0]; ++row) {
    const int32_t slot = cache.slot_of(row);
    if (slot != kAbsent && cache.owner_of(slot) != row) return "slot_of and owner_of disagree";
  }
  return nullptr;
}

}  // namespace dhs
