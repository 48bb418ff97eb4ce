// A row cache in memory that launches can reach, and the same passes run on several of them.
#pragma once

#include <string>
#include <vector>

#include "dhisparse/row_cache_arrays.h"
#include "kernels/resolve/resolve.h"
#include "kernels/test_memory.h"

namespace dhs::test {

inline constexpr int32_t kBlockTokens = 64;

// Ordinary memory with DeviceArray's interface.
template <class T>
class PlainArray {
 public:
  explicit PlainArray(const std::vector<T>& values) : values_(values) {}
  PlainArray(size_t size, T value) : values_(size, value) {}
  T* data() { return values_.data(); }
  void upload(const std::vector<T>& values) { values_ = values; }
  std::vector<T> download() const { return values_; }

 private:
  std::vector<T> values_;
};

// What a row cache holds, in ordinary memory: for looking at and for comparing.
using RowCacheImage = RowCacheArrays;

// The first difference in what has a meaning, or nothing.
inline std::string difference(const RowCacheImage& a, const RowCacheImage& b) {
  const RowCacheHead &x = a.head, &y = b.head;
  if (x.tick != y.tick) return "tick";
  if (x.step_tick != y.step_tick) return "step_tick";
  if (x.hand != y.hand) return "hand";
  if (x.num_live != y.num_live) return "num_live";
  if (x.num_free != y.num_free) return "num_free";
  if (x.num_missing != y.num_missing) return "num_missing";
  if (x.num_evicted != y.num_evicted) return "num_evicted";
  for (size_t i = 0; i < a.evicted_rows.size(); ++i) {
    if (a.evicted_rows[i] != b.evicted_rows[i]) return "evicted_rows " + std::to_string(i);
    if (a.evicted_stamps[i] != b.evicted_stamps[i]) return "evicted_stamps " + std::to_string(i);
  }
  if (a.evicted_before != b.evicted_before) return "evicted_before";
  for (size_t i = 0; i < a.slot_of.size(); ++i) {
    if (a.slot_of[i] != b.slot_of[i]) return "slot_of " + std::to_string(i);
  }
  for (int32_t slot = 0; slot < static_cast<int32_t>(a.owner_of.size()); ++slot) {
    if (a.owner_of[slot] != b.owner_of[slot]) return "owner_of " + std::to_string(slot);
    const bool is_live = slot < x.num_live;
    if (is_live && a.last_used[slot] != b.last_used[slot]) {
      return "last_used " + std::to_string(slot);
    }
  }
  for (int32_t i = 0; i < x.num_free; ++i) {
    if (a.free_ring[i] != b.free_ring[i]) return "free_ring " + std::to_string(i);
  }
  return "";
}

struct Selection {
  std::vector<std::vector<int32_t>> rows;  // positions, -1 padded
  std::vector<int32_t> sequences;          // of each row
  std::vector<std::vector<int32_t>> block_table;
};

// Everything a resolve writes besides the state.
struct Resolved {
  std::vector<int32_t> slots;
  std::vector<int32_t> miss_of;
  std::vector<int64_t> missed_rows;
  std::vector<int32_t> missed_slots;
  std::vector<int64_t> counters;  // selected, hit, missed, evicted
  std::vector<int64_t> selected_of_sequence;
  std::vector<int64_t> missed_of_sequence;

  bool operator==(const Resolved&) const = default;
};

struct Released {
  std::vector<int32_t> from, to;
  int64_t num_dropped = 0;

  bool operator==(const Released&) const = default;
};

struct Refilled {
  std::vector<int64_t> rows;
  std::vector<int32_t> slots;
  int64_t num_refilled = 0;  // as counted

  bool operator==(const Refilled&) const = default;
};

struct Shape {
  int64_t num_host_rows = 0;
  int32_t slots_per_segment = 1;
  int32_t max_num_segments = 1;
  int32_t ring_size = 128;  // of evicted rows
};

// A row cache in memory of one kind whose passes are run by Passes::run(params).
template <template <class> class Array, class Passes>
class RowCache {
 public:
  explicit RowCache(const Shape& shape)
      : slot_of_(shape.num_host_rows, kAbsent),
        owner_of_(int64_t{shape.slots_per_segment} * shape.max_num_segments, kNoOwner),
        last_used_(int64_t{shape.slots_per_segment} * shape.max_num_segments, 0),
        free_ring_(int64_t{shape.slots_per_segment} * shape.max_num_segments, -9),
        head_(1, RowCacheHead{}),
        evicted_rows_(shape.ring_size, kNoOwner),
        evicted_stamps_(shape.ring_size, 0),
        evicted_before_(shape.num_host_rows / kBlockTokens, 0),
        shape_(shape) {}

  RowCacheState state() {
    const int64_t num_slots = int64_t{shape_.slots_per_segment} * shape_.max_num_segments;
    return {view(slot_of_.data(), shape_.num_host_rows),
            view(owner_of_.data(), num_slots),
            view(last_used_.data(), num_slots),
            view(free_ring_.data(), num_slots),
            head_.data(),
            shape_.slots_per_segment,
            view(evicted_rows_.data(), shape_.ring_size),
            view(evicted_stamps_.data(), shape_.ring_size),
            view(evicted_before_.data(), shape_.num_host_rows / kBlockTokens)};
  }
  RowCacheImage image() const {
    RowCacheImage image;
    image.slot_of = slot_of_.download();
    image.owner_of = owner_of_.download();
    image.last_used = last_used_.download();
    image.free_ring = free_ring_.download();
    image.head = head();
    image.slots_per_segment = shape_.slots_per_segment;
    image.evicted_rows = evicted_rows_.download();
    image.evicted_stamps = evicted_stamps_.download();
    image.evicted_before = evicted_before_.download();
    return image;
  }
  RowCacheHead head() const { return head_.download()[0]; }
  void set_tick(uint32_t tick) {
    RowCacheHead head = head_.download()[0];
    head.tick = tick;
    head_.upload({head});
  }

  Resolved resolve(const Selection& selection) {
    std::vector<int32_t> flat, tables;
    for (const auto& row : selection.rows) flat.insert(flat.end(), row.begin(), row.end());
    for (const auto& row : selection.block_table)
      tables.insert(tables.end(), row.begin(), row.end());
    const auto num_rows = static_cast<int64_t>(selection.rows.size());
    const auto top_k = num_rows == 0 ? 0 : static_cast<int64_t>(selection.rows[0].size());
    const auto num_sequences = static_cast<int64_t>(selection.block_table.size());
    Array<int32_t> positions(flat), sequences(selection.sequences), table(tables);
    Array<int32_t> slots(flat.size(), -7), miss_of(flat.size(), -7), num_misses(1, -7);
    Array<FetchOrder> misses(flat.size(), FetchOrder{-7, -7});
    Array<ResolveCounters> counters(1, ResolveCounters{});
    Array<int64_t> selected_of(num_sequences, 0), missed_of(num_sequences, 0);
    Passes::run(ResolveParams{.cache = state(),
                              .selection = view<const int32_t>(positions.data(), num_rows, top_k),
                              .sequence_of_row = view<const int32_t>(sequences.data(), num_rows),
                              .block_table = view<const int32_t>(table.data(), num_sequences,
                                                                 selection.block_table[0].size()),
                              .block_tokens = kBlockTokens,
                              .slots = view(slots.data(), num_rows, top_k),
                              .miss_of = view(miss_of.data(), num_rows, top_k),
                              .misses = view(misses.data(), flat.size()),
                              .num_misses = num_misses.data(),
                              .counters = counters.data(),
                              .selected_of_sequence = selected_of.data(),
                              .missed_of_sequence = missed_of.data()});
    Resolved out = {.slots = slots.download(), .miss_of = miss_of.download()};
    std::vector<FetchOrder> orders = misses.download();
    orders.resize(num_misses.download()[0]);
    for (const FetchOrder& order : orders) {
      out.missed_rows.push_back(order.host_row);
      out.missed_slots.push_back(order.slot);
    }
    const ResolveCounters counts = counters.download()[0];
    out.counters = {counts.selected, counts.hit, counts.missed, counts.evicted};
    out.selected_of_sequence = selected_of.download();
    out.missed_of_sequence = missed_of.download();
    return out;
  }

  // Returns how many rows were evicted.
  int64_t claim(const std::vector<int64_t>& host_rows, bool protect_in_next_pass = false) {
    Array<int64_t> rows(host_rows);
    Array<ResolveCounters> counters(1, ResolveCounters{});
    Passes::run(ClaimParams{.cache = state(),
                            .host_rows = view<const int64_t>(rows.data(), host_rows.size()),
                            .protect_in_next_pass = protect_in_next_pass,
                            .counters = counters.data()});
    return counters.download()[0].evicted;
  }

  void invalidate(const std::vector<int32_t>& host_blocks) {
    Array<int32_t> blocks(host_blocks);
    Passes::run(InvalidateParams{state(), view<const int32_t>(blocks.data(), host_blocks.size()),
                                 kBlockTokens});
    head();  // the list may go when the launch has ended
  }

  Refilled refill(int max_num_rows) {
    Array<FetchOrder> orders(max_num_rows, FetchOrder{-7, -7});
    Array<int32_t> num_orders(1, -7);
    Array<int64_t> num_refilled(1, 0);
    Passes::run(RefillParams{.cache = state(),
                             .block_tokens = kBlockTokens,
                             .orders = view(orders.data(), max_num_rows),
                             .num_orders = num_orders.data(),
                             .num_refilled = num_refilled.data()});
    Refilled out = {.num_refilled = num_refilled.download()[0]};
    std::vector<FetchOrder> written = orders.download();
    written.resize(num_orders.download()[0]);
    for (const FetchOrder& order : written) {
      out.rows.push_back(order.host_row);
      out.slots.push_back(order.slot);
    }
    return out;
  }

  Released release() {
    Array<MoveOrder> moves(shape_.slots_per_segment, MoveOrder{-7, -7});
    Array<int32_t> num_moves(1, -7);
    Array<int64_t> num_dropped(1, 0);
    Passes::run(ReleaseParams{state(), view(moves.data(), shape_.slots_per_segment),
                              num_moves.data(), num_dropped.data()});
    Released out = {.from = {}, .to = {}, .num_dropped = num_dropped.download()[0]};
    std::vector<MoveOrder> orders = moves.download();
    orders.resize(num_moves.download()[0]);
    for (const MoveOrder& order : orders) {
      out.from.push_back(order.from_slot);
      out.to.push_back(order.to_slot);
    }
    return out;
  }

  void grow(int num_segments = 1) {
    for (int i = 0; i < num_segments; ++i) Passes::add({state()});
  }
  void begin_step() { Passes::begin({state()}); }
  void reset() { Passes::reset({state()}); }

 private:
  Array<int32_t> slot_of_;
  Array<int64_t> owner_of_;
  Array<uint32_t> last_used_;
  Array<int32_t> free_ring_;
  Array<RowCacheHead> head_;
  Array<int64_t> evicted_rows_;
  Array<uint32_t> evicted_stamps_;
  Array<int64_t> evicted_before_;
  Shape shape_;
};

// The version that this program tests, in memory it can reach.
struct TestedPasses {
  static void run(const ResolveParams& params) { launch_resolve(params, stream()); }
  static void run(const ClaimParams& params) { launch_claim(params, stream()); }
  static void run(const InvalidateParams& params) { launch_invalidate(params, stream()); }
  static void run(const RefillParams& params) { launch_refill(params, stream()); }
  static void run(const ReleaseParams& params) { launch_release_segment(params, stream()); }
  static void add(const SegmentParams& params) { launch_add_segment(params, stream()); }
  static void begin(const SegmentParams& params) { launch_begin_step(params, stream()); }
  static void reset(const SegmentParams& params) { launch_reset_row_cache(params, stream()); }
};
// The CPU version, in any program.
struct CpuPasses {
  static void run(const ResolveParams& params) { launch_resolve(params, {}); }
  static void run(const ClaimParams& params) { launch_claim(params, {}); }
  static void run(const InvalidateParams& params) { launch_invalidate(params, {}); }
  static void run(const RefillParams& params) { launch_refill(params, {}); }
  static void run(const ReleaseParams& params) { launch_release_segment(params, {}); }
  static void add(const SegmentParams& params) { launch_add_segment(params, {}); }
  static void begin(const SegmentParams& params) { launch_begin_step(params, {}); }
  static void reset(const SegmentParams& params) { launch_reset_row_cache(params, {}); }
};
using TestedRowCache = RowCache<DeviceArray, TestedPasses>;

}  // namespace dhs::test
