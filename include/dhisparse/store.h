// store: the bytes of both tiers, and the only code that copies between them.
//
// Every write goes to the host block and, where the record is resident, to its slot, so a slot
// always holds the same bytes as the host: dropping a slot is free, fetching one is exact.
//
// All of it is queued on the device; nothing here waits for it or reads its memory. What a step did
// is known from a report, once the device has passed it.
//
// A step, for one index group (engine thread):
//   begin_step            which tokens, where they live
//   append_index_keys     of the step's tokens
//   append_rows(layer)    of the group's first layer; also claims slots for the step's tokens
//   select                resolve what the query rows chose, fetch what is missing; cuts them into
//                         tiles whose worst case fits in the row cache (usually one)
//   then for every layer  append_rows(layer); for every tile selected(layer, tile) and attention
// and, where a draft has pages, append_draft_kv of the step's tokens. Nothing need be selected.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/kv.h"
#include "dhisparse/query_rows.h"
#include "dhisparse/tensor.h"
#include "dhisparse/upload.h"
#include "kernels/draft_attention/draft_attention.h"
#include "kernels/gather/gather.h"
#include "kernels/kv_row/kv_row.h"
#include "kernels/resolve/resolve.h"

namespace dhs {

// Since start. A selection counts once; hits and misses count per resolve pass, later layers' too
// when tiles took turns in the cache: they are real.
struct RowCacheCounters {
  ResolveCounters resolve;
  int64_t fetched_bytes = 0;
  int64_t released = 0;  // rows dropped because their chunk left
  int64_t refilled = 0;  // rows fetched before they were wanted again; no misses
  int64_t refilled_bytes = 0;
};

// Who fetches what an index group's first layer misses: a gather in front of attention, or
// attention while it reads (the record's other layers follow beside it). kAuto: on a GPU what costs
// less for the misses to be expected, on the CPU the gather. The bits are the same.
enum class Retrieval { kAuto, kGather, kFused };

struct StoreLayout {
  RowLayout row;
  IndexKeyLayout index_key;
  DraftPageLayout draft_page;  // as KvGeometry says of its bytes
  int64_t max_query_rows = 0;  // of one step
  int64_t max_sequences = 0;   // rows of the tables
  int32_t num_heads = 1;       // of attention: what kAuto weighs
  Retrieval retrieval = Retrieval::kAuto;
};

class KvStore {
 public:
  // Reserves the whole arena of both tiers. RESOURCE_EXHAUSTED when the machine has less. `device`
  // must outlive the store.
  static absl::StatusOr<std::unique_ptr<KvStore>> create(Device& device, KvGeometry geometry,
                                                         KvCapacity capacity, StoreLayout layout);

  const StoreLayout& layout() const { return layout_; }
  const KvGeometry& geometry() const { return geometry_; }
  // At a step boundary: forgets retired blocks, applies the moves in order, restores index items.
  // Precondition: the device has passed the step before the latest one.
  void apply(std::span<const HostBlockId> retired, std::span<const ChunkMove> moves,
             std::span<const BlockRestore> restores);

  // At a step boundary, behind apply(): fetches up to max_rows rows that the group's row cache lost
  // lately, the latest first, into slots that are free. None of a block that was retired since.
  void refill(int group, int64_t max_rows);

  // Whether every group can take these rows in one pass, its own new rows included: then a step
  // does the same launches whatever its data, and may be captured.
  bool fits_one_pass(const QueryRows& rows) const;

  bool choose_retrieval(int64_t num_rows);  // of the next step; true: fused
  // `rows` and what its views point to must live until the next begin_step.
  void begin_step(const QueryRows& rows);
  // Other rows of the same step: what a draft computes of tokens that it proposed. They count to
  // their sequences as the step's own do.
  void continue_step(const QueryRows& rows);
  TensorView<const int32_t, 1> visible() const;  // [num_rows] positions + 1

  void append_index_keys(int group, TensorView<const float, 2> keys);
  void append_rows(int layer, TensorView<const float, 2> latents, TensorView<const float, 2> ropes);

  // kv: [num_rows, num_layers * 2 * width], per draft layer K then V. Those of rows to verify count
  // when they are accepted, and are written anew otherwise.
  void append_draft_kv(TensorView<const float, 2> kv);

  ChunkedItems index_items() const { return index_items_; }
  ChunkedItems draft_pages() const { return draft_pages_; }
  TensorView<const int32_t, 2> page_table() const { return rows_.page_table; }  // of the step

  // [num_rows, top_k] positions, -1 padded. Whoever watches sees those of begin_step's rows.
  using Watcher = std::function<void(int group, TensorView<const int32_t, 2> selection)>;
  void watch_selections(Watcher watcher) { watcher_ = std::move(watcher); }
  void select(int group, TensorView<const int32_t, 2> selection);
  int num_tiles() const { return static_cast<int>(tiles_.size()); }
  SelectedRows selected(int layer, int tile);

  int64_t capacity_rows(int group) const { return live_rows_[group]; }
  // Queues a copy of all counters, as the work launched so far leaves them, into place 0 or 1.
  void queue_report(int place);
  // Takes the misses since the report before as what decode steps are to expect, if it was one.
  void learn(int place, bool is_decode);
  // What the latest queue_report(place) saw, once the device has passed it.
  RowCacheCounters counters(int place, int group) const;
  int64_t resident_rows(int place, int group) const;
  // Of the latest step, by row of the tables, all groups; a tile's first pass only.
  int64_t selected_of_sequence(int place, int64_t sequence) const;
  int64_t missed_of_sequence(int place, int64_t sequence) const;

  // For tests, when the device is idle and its memory is the host's (CPU, emulation). The first
  // violated invariant, or empty: O(all).
  std::string check_invariants() const;
  // All that says where rows lie, and the host blocks' bytes: equal where ranks did the same.
  std::string row_cache_state() const;
  // Fills the records and index keys of a host block with `value`: canaries of the isolation test.
  void poison(HostBlockId block, std::byte value);

 private:
  // What the device counts; a report is a copy of it.
  struct GroupCounters {
    ResolveCounters first;   // passes that are a tile's first
    ResolveCounters repeat;  // its others
    int64_t released = 0;
    int64_t refilled = 0;
    RowCacheHead head;
  };

  KvStore(Device& device, KvGeometry geometry, KvCapacity capacity, StoreLayout layout);
  absl::Status reserve();
  absl::Status check_scratch() const;
  void lay_out_state(ArenaCarver& carver);
  void lay_out_step(ArenaCarver& carver);
  void lay_out_counters(ArenaCarver& carver);
  ChunkedItems slots(int group) const;
  HostRecords host_records(int group) const;
  int group_of_layer(int layer) const;
  void set_chunk_offset(int64_t table, int32_t segment, int64_t offset);
  void retire(std::span<const HostBlockId> blocks);
  void release_rows(const ChunkMove& move);
  void restore(std::span<const BlockRestore> restores, bool is_draft);
  bool has_draft_pages() const { return geometry_.draft_page_bytes > 0; }
  void take_rows(const QueryRows& rows);
  void claim_new_rows(int group);
  void resolve(int group, const RowTile& tile, bool is_repeat);
  void gather(int group, int64_t first_byte, Stream stream);
  const GroupCounters& reported(int place, int group) const;

  Device& device_;
  const KvGeometry geometry_;
  const KvCapacity capacity_;
  const StoreLayout layout_;
  const Stream stream_;
  Uploader uploader_;
  std::unique_ptr<Event> resolved_;  // on stream(): the orders are there
  std::unique_ptr<Event> fetched_;   // on copy_stream(): so are the records

  MemoryRange device_pool_, host_arena_;
  MemoryRange state_arena_, step_arena_, counters_arena_;  // laid out by lay_out_*
  MemoryRange reports_;                                    // host memory: two places
  std::vector<RowCacheState> row_caches_;
  std::vector<int64_t> live_rows_;  // per group: slots that have memory
  // [num_groups + 2, num_chunks]; behind row caches: segments of index items, of draft pages.
  TensorView<int64_t, 2> chunk_offsets_;
  ChunkedItems index_items_, draft_pages_;
  TensorView<GroupCounters, 1> counters_;
  TensorView<int64_t, 1> selected_of_sequence_, missed_of_sequence_;  // [max_sequences]

  QueryRows rows_;
  TensorView<int64_t, 1> host_rows_;  // [max_query_rows] of the step's tokens
  TensorView<int32_t, 1> item_of_token_, page_of_token_, visible_;  // [max_query_rows]
  TensorView<int32_t, 2> step_slots_, miss_of_;                     // [max_query_rows, top_k]
  TensorView<FetchOrder, 1> orders_, restore_orders_, draft_restore_orders_;
  TensorView<MoveOrder, 1> move_orders_;
  // Fetches, moves, restores of index items, of draft pages.
  TensorView<int32_t, 1> num_orders_, retired_blocks_;
  TensorView<const int32_t, 2> selection_;
  Watcher watcher_;
  bool is_continued_ = false;  // the step's rows are not those that it began with
  int selected_group_ = -1;
  bool is_fused_ = false;         // retrieval of this step
  ResolveCounters learned_;       // all groups, as of the latest report learned from
  double misses_per_row_ = 0;     // and group, expected
  bool fetch_in_flight_ = false;  // on copy_stream(), for the selected group's later layers
  std::vector<RowTile> tiles_;
};

}  // namespace dhs
