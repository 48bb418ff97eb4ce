// store: the bytes of both tiers, and the only code that copies between them.
//
// Every write goes to the host block and, where the record is resident, to its slot, so a slot
// always holds the same bytes as the host: dropping a slot is free, fetching one is exact.
//
// A step, for one index group (engine thread, all on the device's stream):
//   begin_step            which tokens, where they live
//   append_index_keys     of the step's tokens
//   append_rows(layer)    of the group's first layer; also claims slots for the step's tokens
//   select                resolve and gather what the query rows chose; cuts the query rows into
//                         tiles whose worst-case selection fits in the row cache (usually one)
//   then for every layer  append_rows(layer); for every tile selected(layer, tile) and attention
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <span>
#include <vector>

#include "dhisparse/device.h"
#include "dhisparse/kv.h"
#include "dhisparse/tensor.h"
#include "kernels/gather/gather.h"
#include "kernels/kv_row/kv_row.h"
#include "kernels/resolve/resolve.h"

namespace dhs {

// Query rows of one step: rows of a sequence are consecutive and ascending in position.
struct QueryRows {
  TensorView<const int32_t, 1> sequence_of_row;  // [num_rows], ascending
  TensorView<const int32_t, 1> positions;        // [num_rows]
  TensorView<const int32_t, 2> block_table;      // [num_sequences, max_num_blocks] host blocks
  TensorView<const int32_t, 2> item_table;       // [num_sequences, max_num_blocks] index items
  int64_t num_rows() const { return positions.sizes[0]; }
  int64_t num_sequences() const { return block_table.sizes[0]; }
};

// Query rows [first_row, first_row + num_rows) of the step, and where their selected rows lie.
struct SelectedRows {
  int64_t first_row = 0;
  TensorView<const int32_t, 2> slots;  // [num_rows, top_k], -1 padded
  ChunkedItems records;
  int64_t row_offset = 0;  // of the layer within a record
};

// Since start. A selection counts once. Hits and misses count per resolve pass, so those of later
// layers too when tiles took turns in the cache: they are real.
struct RowCacheCounters {
  ResolveCounters resolve;
  int64_t fetched_bytes = 0;
  int64_t released = 0;  // rows dropped because their chunk left
};

struct StoreLayout {
  RowLayout row;
  IndexKeyLayout index_key;
  int64_t max_query_rows = 0;  // of one step
};

class KvStore {
 public:
  // Reserves the whole arena of both tiers. RESOURCE_EXHAUSTED when the machine has less.
  static absl::StatusOr<std::unique_ptr<KvStore>> create(Device& device, KvGeometry geometry,
                                                         KvCapacity capacity, StoreLayout layout);

  const StoreLayout& layout() const { return layout_; }
  const KvGeometry& geometry() const { return geometry_; }

  // At a step boundary: forgets retired blocks, then applies the moves in their order.
  void apply(std::span<const HostBlockId> retired, std::span<const ChunkMove> moves);

  // `rows` and what its views point to must live until the next begin_step.
  void begin_step(const QueryRows& rows);

  void append_index_keys(int group, TensorView<const float, 2> keys);
  void append_rows(int layer, TensorView<const float, 2> latents, TensorView<const float, 2> ropes);

  ChunkedItems index_items() const { return index_items_; }

  // selection: [num_rows, top_k] positions, -1 padded.
  void select(int group, TensorView<const int32_t, 2> selection);
  int num_tiles() const { return static_cast<int>(tiles_.size()); }
  SelectedRows selected(int layer, int tile);

  const std::vector<RowCacheCounters>& counters() const { return counters_; }
  int64_t resident_rows(int group) const;
  int64_t capacity_rows(int group) const;
  // [num_sequences of the latest step], all groups; the first pass of a tile only, so that a miss
  // is one of the selected.
  std::span<const int64_t> selected_of_sequence() const { return selected_of_sequence_; }
  std::span<const int64_t> missed_of_sequence() const { return missed_of_sequence_; }

  // The first violated invariant, or empty; compares slot bytes with host bytes. For tests: O(all).
  std::string check_invariants() const;
  // Fills the records and index keys of a host block with `value`: canaries of the isolation test.
  void poison(HostBlockId block, std::byte value);

 private:
  struct Tile {
    int64_t first_row = 0;
    int64_t num_rows = 0;
  };

  KvStore(KvGeometry geometry, KvCapacity capacity, StoreLayout layout, Stream stream);
  absl::Status reserve(Device& device);
  RowCacheState row_cache(int group) const;
  ChunkedItems slots(int group) const;
  HostRecords host_records(int group) const;
  int group_of_layer(int layer) const;
  void release_rows(const ChunkMove& move);
  int64_t most_rows_needed() const;
  void claim_new_rows(int group);
  void cut_tiles(int group);
  void resolve_and_gather(int group, const Tile& tile, bool is_repeat);

  const KvGeometry geometry_;
  const KvCapacity capacity_;
  const StoreLayout layout_;
  const Stream stream_;

  MemoryRange device_pool_;
  MemoryRange host_arena_;
  MemoryRange state_arena_;  // the arrays of every RowCacheState
  MemoryRange step_arena_;   // slots, orders and per-row arrays of a step
  std::vector<RowCacheState> row_caches_;
  std::vector<std::vector<int64_t>> row_chunk_offsets_;  // per group, by segment
  std::vector<int64_t> index_chunk_offsets_;             // by segment
  ChunkedItems index_items_;
  std::vector<RowCacheCounters> counters_;
  std::vector<uint32_t> step_ticks_;  // per group: tick when the latest step began

  QueryRows rows_;
  TensorView<int64_t, 1> host_rows_;      // [max_query_rows] of the step's tokens
  TensorView<int32_t, 1> item_of_token_;  // [max_query_rows]
  TensorView<int32_t, 2> step_slots_;     // [max_query_rows, top_k]
  TensorView<FetchOrder, 1> orders_;
  TensorView<MoveOrder, 1> move_orders_;
  TensorView<const int32_t, 2> selection_;
  int selected_group_ = -1;
  std::vector<Tile> tiles_;
  std::vector<int64_t> selected_of_sequence_;
  std::vector<int64_t> missed_of_sequence_;
};

}  // namespace dhs
