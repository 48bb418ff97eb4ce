// The phases of one pass (resolve or claim), each over one piece of its entries by one block. The
// phases are separated by block barriers or by launches: resolve.cu has both.
//
//   mark    hits are stamped. An absent row's place in slot_of becomes a code: the lowest entry
//           that names the row, found by atomicMin, so it does not matter who comes first.
//   list    an entry learns who names its row first; the first ones are counted per piece.
//           Meanwhile victims are chosen, for the number of absent rows is known.
//   place   the first ones get their order's index: their rank in the order of entries. Meanwhile
//           the victims that no class could give are found.
//   assign  orders get their slots, slots their owners, and every entry its slot.
#pragma once

#include "kernels/resolve/pass_config.h"
#include "kernels/resolve/victims.cuh"

namespace dhs::row_cache {

// What a pass has found out about itself: head stays as it was until the pass ends.
struct PassPlan {
  uint32_t tick = 0;
  int32_t num_live = 0;
  int32_t hand = 0;
  int32_t num_free = 0;
  int32_t num_missing = 0;    // distinct absent rows: orders
  int32_t num_from_free = 0;  // orders that take the free ring; the others take victims
  int32_t num_deficits = 0;   // victims that their classes could not give
  int32_t num_short = 0;      // victims that do not exist

  __device__ int32_t num_victims() const { return num_missing - num_from_free; }
};

// A resolve or a claim, in one shape: entries are [num_rows, num_columns], each wants a host row.
struct Pass {
  RowCacheState cache;
  TensorView<const int32_t, 2> selection;  // resolve
  TensorView<const int32_t, 1> sequence_of_row;
  TensorView<const int32_t, 2> block_table;
  int32_t block_tokens = 0;
  TensorView<const int64_t, 1> host_rows;  // claim
  TensorView<int32_t, 2> slots;            // the outputs of resolve; null data: not wanted
  TensorView<int32_t, 2> miss_of;
  int32_t* num_misses = nullptr;
  int64_t* selected_of_sequence = nullptr;
  int64_t* missed_of_sequence = nullptr;
  ResolveCounters* counters = nullptr;
  bool is_claim = false;  // counts evictions only; rows may stay absent
  uint32_t stamp_ahead = 0;

  int32_t num_rows = 0;
  int32_t num_columns = 0;
  PassConfig config;
  TensorView<FetchOrder, 1> orders;    // [distinct absent rows]
  PassPlan* plan = nullptr;            // scratch from here on
  int32_t* entry_state = nullptr;      // [num_rows * num_columns]
  int32_t* firsts_of_piece = nullptr;  // [num_pieces] entries that name an absent row first
};

// ---- Codes. Slots are >= 0 and kAbsent is -1; everything else is below. -------------------------

// slot_of: the lowest entry so far that names an absent row. entry_state of a first one, from place
// on: the index of its order. Fewer than 2^30 of either.
__device__ __forceinline__ int32_t code_of(int32_t idx) { return INT32_MIN + idx; }
__device__ __forceinline__ int32_t idx_of(int32_t code) { return code - INT32_MIN; }
// entry_state of an absent row's entry after mark, and after list: who names it first.
inline constexpr int32_t kMissing = -2;
__device__ __forceinline__ int32_t state_of_first(int32_t entry) { return kMissing - entry; }
__device__ __forceinline__ int32_t first_of_state(int32_t state) { return kMissing - state; }
__device__ __forceinline__ bool has_order(int32_t state) { return state < INT32_MIN / 2; }

// ---- Entries ------------------------------------------------------------------------------------

struct Entry {
  int32_t row;
  int32_t column;
  bool is_any;  // false: beyond the row's end

  __device__ int32_t idx(const Pass& pass) const { return row * pass.num_columns + column; }
};

// Calls visit(entry) for the thread's entries of the piece. Threads of a warp visit neighbours and
// stay together; warps follow each other in the order of entries.
template <class Visit>
__device__ __forceinline__ void visit_piece(const Pass& pass, int32_t piece, Visit visit) {
  const PassConfig& config = pass.config;
  const int32_t row = piece / config.pieces_per_row;
  int32_t column = piece % config.pieces_per_row * config.piece_columns() +
                   warp_idx() * 32 * config.items_per_thread + lane_idx();
  for (int32_t item = 0; item < config.items_per_thread; ++item, column += 32) {
    visit(Entry{row, column, column < pass.num_columns});
  }
}

// Negative for padding.
__device__ inline int64_t host_row_of(const Pass& pass, const Entry& entry) {
  if (pass.is_claim) return pass.host_rows(entry.column);
  const int32_t position = pass.selection(entry.row, entry.column);
  if (position < 0) return -1;
  const int32_t sequence = pass.sequence_of_row(entry.row);
  const int32_t block = pass.block_table(sequence, position / pass.block_tokens);
  return int64_t{block} * pass.block_tokens + position % pass.block_tokens;
}

__device__ inline void write_entry(const Pass& pass, const Entry& entry, int32_t slot,
                                   int32_t miss) {
  if (pass.slots.data != nullptr) pass.slots(entry.row, entry.column) = slot;
  if (pass.miss_of.data != nullptr) pass.miss_of(entry.row, entry.column) = miss;
}

__device__ inline int32_t state_of(const Pass& pass, const Entry& entry) {
  return entry.is_any ? pass.entry_state[entry.idx(pass)] : kAbsent;
}

// Whether the entry names an absent row first. Between list and place.
__device__ inline bool is_first(const Pass& pass, const Entry& entry) {
  return state_of(pass, entry) == state_of_first(entry.idx(pass)) && entry.is_any;
}

// ---- mark ---------------------------------------------------------------------------------------

struct Tally {
  int32_t selected = 0;
  int32_t hit = 0;
  int32_t missing = 0;
};

__device__ inline void mark_entry(const Pass& pass, const Entry& entry, uint32_t tick,
                                  Tally& tally) {
  if (!entry.is_any) return;
  const int64_t host_row = host_row_of(pass, entry);
  int32_t state = kAbsent;
  if (host_row >= 0) {
    ++tally.selected;
    int32_t* slot_of = &pass.cache.slot_of(host_row);
    const int32_t code = code_of(entry.idx(pass));
    const int32_t old = atomicCAS(slot_of, kAbsent, code);
    if (old >= 0) {
      const uint32_t stamp = tick + pass.stamp_ahead;
      tally.hit += atomicExch(&pass.cache.last_used(old), stamp) != stamp ? 1 : 0;
    } else {
      tally.missing += old == kAbsent ? 1 : 0;
      if (old != kAbsent && code < old) atomicMin(slot_of, code);
    }
    state = old >= 0 ? old : kMissing;
  }
  pass.entry_state[entry.idx(pass)] = state;
  if (state != kMissing) write_entry(pass, entry, state, -1);
}

__device__ inline void mark_piece(const Pass& pass, int32_t piece, BlockShared& shared) {
  Tally tally;
  const uint32_t tick = pass.cache.head->tick + 1;
  visit_piece(pass, piece, [&](const Entry& entry) { mark_entry(pass, entry, tick, tally); });
  tally.missing = block_sum(tally.missing, shared);
  if (!pass.is_claim) {
    tally.selected = block_sum(tally.selected, shared);
    tally.hit = block_sum(tally.hit, shared);
  }
  if (thread_idx() != 0) return;
  if (tally.missing > 0) atomicAdd(&pass.cache.head->num_missing, tally.missing);
  if (pass.is_claim) return;
  add_to(&pass.counters->selected, tally.selected);
  add_to(&pass.counters->hit, tally.hit);
  if (pass.selected_of_sequence == nullptr) return;
  const int32_t sequence = pass.sequence_of_row(piece / pass.config.pieces_per_row);
  add_to(&pass.selected_of_sequence[sequence], tally.selected);
}

__device__ inline void begin_plan(const Pass& pass) {
  pass.plan->num_deficits = 0;
  pass.plan->num_short = 0;
}

// ---- list and choose ----------------------------------------------------------------------------

__device__ inline void list_piece(const Pass& pass, int32_t piece, BlockShared& shared) {
  int32_t num_firsts = 0;
  visit_piece(pass, piece, [&](const Entry& entry) {
    if (state_of(pass, entry) != kMissing) return;
    const int32_t first = idx_of(pass.cache.slot_of(host_row_of(pass, entry)));
    pass.entry_state[entry.idx(pass)] = state_of_first(first);
    num_firsts += first == entry.idx(pass) ? 1 : 0;
  });
  num_firsts = block_sum(num_firsts, shared);
  if (thread_idx() == 0) pass.firsts_of_piece[piece] = num_firsts;
}

// Everything but the deficits, which are counted while others read this.
__device__ inline PassPlan plan_from_head(const Pass& pass) {
  const RowCacheHead& head = *pass.cache.head;
  PassPlan plan;
  plan.tick = head.tick + 1;
  plan.num_live = head.num_live;
  plan.hand = head.hand;
  plan.num_free = head.num_free;
  plan.num_missing = head.num_missing;
  plan.num_from_free = head.num_missing < head.num_free ? head.num_missing : head.num_free;
  return plan;
}

__device__ inline void write_plan(const Pass& pass, const PassPlan& plan) {
  PassPlan& to = *pass.plan;
  to.tick = plan.tick;
  to.num_live = plan.num_live;
  to.hand = plan.hand;
  to.num_free = plan.num_free;
  to.num_missing = plan.num_missing;
  to.num_from_free = plan.num_from_free;
}

__device__ inline VictimChoice choice_of(const Pass& pass, const PassPlan& plan) {
  constexpr int64_t kStride = sizeof(FetchOrder) / sizeof(int32_t);
  const int64_t stride = pass.orders.strides[0] * kStride;
  int32_t* first_slot = nullptr;
  if (plan.num_victims() > 0) first_slot = &pass.orders(plan.num_from_free).slot;
  return {.cache = pass.cache,
          .limit = plan.tick,
          .num_live = plan.num_live,
          .hand = plan.hand,
          .num_victims = plan.num_victims(),
          .slots = {first_slot, {plan.num_victims()}, {stride}},
          .num_evicted = pass.cache.head->num_evicted};
}

// Warp `warp` of `num` in the grid.
__device__ inline void choose_victims(const Pass& pass, const PassPlan& plan, int warp, int num) {
  const int32_t num_deficits = choose_in_classes(choice_of(pass, plan), warp, num);
  if (num_deficits > 0) atomicAdd(&pass.plan->num_deficits, num_deficits);
}

// ---- place --------------------------------------------------------------------------------------

__device__ inline void place_piece(const Pass& pass, int32_t piece, BlockShared& shared) {
  if (pass.firsts_of_piece[piece] == 0) return;
  int32_t num_own = 0;
  visit_piece(pass, piece, [&](const Entry& entry) { num_own += is_first(pass, entry) ? 1 : 0; });
  const Sums sums = sum_over_warps(__reduce_add_sync(kAllLanes, num_own), shared);
  int32_t order = sum_of_counts(pass.firsts_of_piece, piece, shared) + sums.before;
  visit_piece(pass, piece, [&](const Entry& entry) {
    const bool is_named = is_first(pass, entry);
    const unsigned votes = __ballot_sync(kAllLanes, is_named);
    if (is_named) {
      const int32_t own = order + votes_before(votes);
      pass.orders(own).host_row = host_row_of(pass, entry);
      pass.entry_state[entry.idx(pass)] = code_of(own);
    }
    order += __popc(votes);
  });
  if (thread_idx() != 0 || pass.missed_of_sequence == nullptr) return;
  const int32_t sequence = pass.sequence_of_row(piece / pass.config.pieces_per_row);
  add_to(&pass.missed_of_sequence[sequence], sums.total);
}

// One block.
__device__ inline void find_deficits(const Pass& pass, const PassPlan& plan, BlockShared& shared) {
  if (plan.num_deficits == 0) return;
  const int32_t num_short = fill_deficits(choice_of(pass, plan), plan.num_deficits, shared);
  if (thread_idx() != 0) return;
  stop_unless(num_short == 0 || pass.is_claim, "resolve: the selection does not fit");
  pass.plan->num_short = num_short;
}

// ---- assign -------------------------------------------------------------------------------------

__device__ inline bool is_last_tick(const PassPlan& plan) { return plan.tick >= kLastTick; }

// The first one to name a row speaks for it.
__device__ inline void assign_order(const Pass& pass, const PassPlan& plan, int32_t order,
                                    int32_t slot) {
  const int64_t host_row = pass.orders(order).host_row;
  if (order < plan.num_from_free) pass.orders(order).slot = slot;
  pass.cache.slot_of(host_row) = slot;
  if (slot == kAbsent) return;
  pass.cache.owner_of(slot) = host_row;
  if (!is_last_tick(plan)) pass.cache.last_used(slot) = plan.tick + pass.stamp_ahead;
}

__device__ inline void assign_entry(const Pass& pass, const PassPlan& plan, const Entry& entry) {
  const int32_t state = state_of(pass, entry);
  if (state >= kAbsent) return;
  const bool is_named = has_order(state);
  const int32_t order = idx_of(is_named ? state : pass.entry_state[first_of_state(state)]);
  const int32_t slot = order < plan.num_from_free ? pass.cache.free_ring(plan.num_free - 1 - order)
                                                  : pass.orders(order).slot;
  if (is_named) assign_order(pass, plan, order, slot);
  write_entry(pass, entry, slot, 2 * order + (is_named ? 1 : 0));
}

__device__ inline void assign_piece(const Pass& pass, const PassPlan& plan, int32_t piece) {
  visit_piece(pass, piece, [&](const Entry& entry) { assign_entry(pass, plan, entry); });
}

// The head and the counts, by one thread.
__device__ inline void end_pass(const Pass& pass, const PassPlan& plan) {
  RowCacheHead& head = *pass.cache.head;
  head.tick = is_last_tick(plan) ? 0 : plan.tick;
  if (is_last_tick(plan)) head.step_tick = 1;
  head.num_free = plan.num_free - plan.num_from_free;
  head.num_missing = 0;
  head.num_evicted += plan.num_victims();
  if (plan.num_victims() > 0 && plan.num_live > 0) {
    head.hand = static_cast<int32_t>((int64_t{plan.hand} + plan.num_victims()) % plan.num_live);
  }
  pass.counters->evicted += plan.num_victims() - plan.num_short;
  if (pass.is_claim) return;
  pass.counters->missed += plan.num_missing;
  *pass.num_misses = plan.num_missing;
}

// After the last tick all stamps start again from zero. Thread `thread` of `num` in the grid.
__device__ inline void forget_stamps(const Pass& pass, const PassPlan& plan, int64_t thread,
                                     int64_t num) {
  if (!is_last_tick(plan)) return;
  for (int64_t slot = thread; slot < plan.num_live; slot += num) pass.cache.last_used(slot) = 0;
  const int64_t ring_size = pass.cache.evicted_stamps.sizes[0];
  for (int64_t entry = thread; entry < ring_size; entry += num) {
    pass.cache.evicted_stamps(entry) = 0;
  }
}

}  // namespace dhs::row_cache
