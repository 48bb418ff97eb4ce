#include <algorithm>
#include <cstring>

#include "dhisparse/base.h"
#include "dhisparse/store.h"
#include "kernels/append/append.h"

namespace dhs {

KvStore::KvStore(KvGeometry geometry, KvCapacity capacity, StoreLayout layout, Stream stream)
    : geometry_(std::move(geometry)), capacity_(capacity), layout_(layout), stream_(stream) {}

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::create(Device& device, KvGeometry geometry,
                                                         KvCapacity capacity, StoreLayout layout) {
  auto store =
      std::unique_ptr<KvStore>(new KvStore(std::move(geometry), capacity, layout, device.stream()));
  DHS_RETURN_IF_ERROR(store->reserve(device));
  return store;
}

absl::Status KvStore::reserve(Device& device) {
  const auto num_groups = geometry_.groups.size();
  const int64_t num_host_rows = int64_t{capacity_.num_host_blocks} * kHostBlockTokens;
  DHS_ASSIGN_OR_RETURN(device_pool_, device.allocate(capacity_.num_chunks * capacity_.chunk_bytes));
  DHS_ASSIGN_OR_RETURN(
      host_arena_, device.allocate_host(capacity_.num_host_blocks * geometry_.host_block_bytes));

  row_caches_.resize(num_groups);
  row_chunk_offsets_.assign(num_groups, std::vector<int64_t>(capacity_.num_chunks));
  index_chunk_offsets_.resize(capacity_.num_chunks);
  counters_.resize(num_groups);
  step_ticks_.resize(num_groups);
  index_items_ = {device_pool_.data(), index_chunk_offsets_.data(),
                  static_cast<int32_t>(geometry_.index_items_per_chunk(capacity_.chunk_bytes)),
                  geometry_.index_item_bytes};

  int64_t most_slots = 0;
  auto lay_out_state = [&](ArenaCarver& carver) {
    for (size_t g = 0; g < num_groups; ++g) {
      RowCacheState& cache = row_caches_[g];
      const int64_t per_segment = geometry_.records_per_chunk(g, capacity_.chunk_bytes);
      // Never more slots than host rows: a row is resident once.
      const int64_t max_slots =
          per_segment *
          std::min<int64_t>(capacity_.num_chunks, ceil_div(num_host_rows, per_segment));
      most_slots = std::max(most_slots, max_slots);
      cache.slots_per_segment = static_cast<int32_t>(per_segment);
      cache.slot_of = carver.take<int32_t>(num_host_rows);
      cache.owner_of = carver.take<int64_t>(max_slots);
      cache.last_used = carver.take<uint32_t>(max_slots);
      cache.free_ring = carver.take<int32_t>(max_slots);
      cache.head = carver.take<RowCacheHead>(1).data;
    }
  };
  DHS_ASSIGN_OR_RETURN(state_arena_, carve(device, lay_out_state));
  auto lay_out_step = [&](ArenaCarver& carver) {
    const int64_t rows = layout_.max_query_rows;
    host_rows_ = carver.take<int64_t>(rows);
    item_of_token_ = carver.take<int32_t>(rows);
    step_slots_ = view(carver.take<int32_t>(rows * geometry_.top_k).data, rows, geometry_.top_k);
    orders_ = carver.take<FetchOrder>(most_slots);
    move_orders_ = carver.take<MoveOrder>(most_slots);
  };
  DHS_ASSIGN_OR_RETURN(step_arena_, carve(device, lay_out_step));
  for (RowCacheState& cache : row_caches_) {
    std::fill_n(cache.slot_of.data, cache.slot_of.sizes[0], kAbsent);
    std::fill_n(cache.owner_of.data, cache.owner_of.sizes[0], kNoOwner);
    *cache.head = RowCacheHead{};
  }
  return absl::OkStatus();
}

RowCacheState KvStore::row_cache(int group) const { return row_caches_[group]; }

ChunkedItems KvStore::slots(int group) const {
  return {device_pool_.data(), row_chunk_offsets_[group].data(),
          row_caches_[group].slots_per_segment, geometry_.groups[group].record_bytes};
}

HostRecords KvStore::host_records(int group) const {
  const GroupGeometry& geometry = geometry_.groups[group];
  return {host_arena_.data(), geometry_.host_block_bytes, geometry.record_offset,
          geometry.record_bytes, kHostBlockTokens};
}

int KvStore::group_of_layer(int layer) const {
  const auto& groups = geometry_.groups;
  const auto after =
      std::upper_bound(groups.begin(), groups.end(), layer,
                       [](int wanted, const auto& group) { return wanted < group.first_layer; });
  DHS_CHECK(after != groups.begin(), "layer ", layer, " is in no index group");
  return static_cast<int>(after - groups.begin()) - 1;
}

int64_t KvStore::resident_rows(int group) const {
  const RowCacheHead& head = *row_caches_[group].head;
  return head.num_live - head.num_free;
}

int64_t KvStore::capacity_rows(int group) const { return row_caches_[group].head->num_live; }

// ---- Step boundary ------------------------------------------------------------------------------

void KvStore::apply(std::span<const HostBlockId> retired, std::span<const ChunkMove> moves) {
  for (HostBlockId block : retired) {
    for (size_t g = 0; g < row_caches_.size(); ++g) {
      launch_invalidate(row_cache(g), int64_t{block.value} * kHostBlockTokens, kHostBlockTokens,
                        stream_);
    }
  }
  for (const ChunkMove& move : moves) {
    const int64_t offset = move.chunk.value * capacity_.chunk_bytes;
    switch (move.kind) {
      case ChunkMove::Kind::kGrowRows:
        row_chunk_offsets_[move.group][move.segment] = offset;
        launch_add_segment(row_cache(move.group), stream_);
        break;
      case ChunkMove::Kind::kReleaseRows:
        release_rows(move);
        break;
      case ChunkMove::Kind::kGrowIndex:
        index_chunk_offsets_[move.segment] = offset;
        break;
      case ChunkMove::Kind::kReleaseIndex:
        break;  // its pages belong to nobody
    }
  }
}

void KvStore::release_rows(const ChunkMove& move) {
  const RowCacheState cache = row_cache(move.group);
  DHS_CHECK(cache.head->num_live == (move.segment + 1) * cache.slots_per_segment,
            "only the last segment of a row cache can be released");
  int32_t num_moves = 0;
  launch_release_segment({.cache = cache,
                          .protected_tick = step_ticks_[move.group],
                          .moves = move_orders_,
                          .num_moves = &num_moves,
                          .num_dropped = &counters_[move.group].released},
                         stream_);
  const ChunkedItems items = slots(move.group);
  for (int32_t i = 0; i < num_moves; ++i) {
    const MoveOrder& order = move_orders_(i);
    std::memcpy(items.at(order.to_slot), items.at(order.from_slot),
                static_cast<size_t>(items.item_bytes));
  }
}

void KvStore::begin_step(const QueryRows& rows) {
  DHS_CHECK(rows.num_rows() <= layout_.max_query_rows, rows.num_rows(), " query rows, limit ",
            layout_.max_query_rows);
  rows_ = rows;
  selected_group_ = -1;
  tiles_.clear();
  selected_of_sequence_.assign(rows.num_sequences(), 0);
  missed_of_sequence_.assign(rows.num_sequences(), 0);
  for (int64_t i = 0; i < rows.num_rows(); ++i) {
    const int32_t sequence = rows.sequence_of_row(i);
    const int32_t block = rows.positions(i) / kHostBlockTokens;
    const int32_t offset = rows.positions(i) % kHostBlockTokens;
    host_rows_(i) = int64_t{rows.block_table(sequence, block)} * kHostBlockTokens + offset;
    item_of_token_(i) = rows.item_table(sequence, block);
  }
  for (size_t g = 0; g < row_caches_.size(); ++g) step_ticks_[g] = row_caches_[g].head->tick + 1;
}

// ---- Within a step ------------------------------------------------------------------------------

void KvStore::append_index_keys(int group, TensorView<const float, 2> keys) {
  const GroupGeometry& geometry = geometry_.groups[group];
  launch_append_index_keys(
      {.layout = layout_.index_key,
       .host_base = host_arena_.data(),
       .host_block_bytes = geometry_.host_block_bytes,
       .host_page_offset = geometry_.index_item_offset + geometry.page_offset,
       .pages = index_items_,
       .page_offset = geometry.page_offset,
       .host_rows = view<const int64_t>(host_rows_.data, rows_.num_rows()),
       .item_of_token = view<const int32_t>(item_of_token_.data, rows_.num_rows()),
       .keys = keys},
      stream_);
}

// Rows that one pass over all query rows can need at most, the step's own rows among them.
int64_t KvStore::most_rows_needed() const {
  int64_t total = 0;
  int64_t own = 0;  // of the sequence that ends at `row`
  for (int64_t row = 0; row < rows_.num_rows(); ++row) {
    const bool begins = row == 0 || rows_.sequence_of_row(row) != rows_.sequence_of_row(row - 1);
    const int64_t visible = rows_.positions(row) + 1;
    if (begins) {
      total += own;
      own = 0;
    }
    own = std::min(visible, own + std::min<int64_t>(geometry_.top_k, visible) + 1);
  }
  return total + own;
}

// The step's own rows will be wanted soonest of all: they take slots without a fetch, and keep them
// through the pass that follows where everything fits together.
void KvStore::claim_new_rows(int group) {
  launch_claim({.cache = row_cache(group),
                .host_rows = view<const int64_t>(host_rows_.data, rows_.num_rows()),
                .protect_in_next_pass = most_rows_needed() <= capacity_rows(group),
                .counters = &counters_[group].resolve},
               stream_);
}

void KvStore::append_rows(int layer, TensorView<const float, 2> latents,
                          TensorView<const float, 2> ropes) {
  const int group = group_of_layer(layer);
  const int layer_in_group = layer - geometry_.groups[group].first_layer;
  if (layer_in_group == 0) claim_new_rows(group);
  launch_append_rows({.layout = layout_.row,
                      .host = host_records(group),
                      .slots = slots(group),
                      .slot_of = row_caches_[group].slot_of,
                      .row_offset = layer_in_group * layout_.row.row_bytes(),
                      .host_rows = view<const int64_t>(host_rows_.data, rows_.num_rows()),
                      .latents = latents,
                      .ropes = ropes},
                     stream_);
}

// Tiles are cut greedily; a tile's worst case is, per sequence, the smaller of its rows' selections
// together and its visible context.
void KvStore::cut_tiles(int group) {
  const int64_t capacity = row_caches_[group].head->num_live;
  tiles_.clear();
  Tile tile;
  int64_t full = 0;     // worst case of the tile's finished sequences
  int64_t current = 0;  // worst case of the row's own sequence within the tile
  for (int64_t row = 0; row < rows_.num_rows(); ++row) {
    const int64_t visible = rows_.positions(row) + 1;
    const int64_t selected = std::min<int64_t>(geometry_.top_k, visible);
    const bool same =
        tile.num_rows > 0 && rows_.sequence_of_row(row) == rows_.sequence_of_row(row - 1);
    const int64_t base = same ? full : full + current;
    const int64_t own = std::min(visible, (same ? current : 0) + selected);
    if (tile.num_rows > 0 && base + own > capacity) {
      tiles_.push_back(tile);
      tile = {row, 0};
      full = 0;
      current = selected;
    } else {
      full = base;
      current = own;
    }
    DHS_CHECK(current <= capacity, "one query row selects ", current, " rows, the row cache has ",
              capacity);
    ++tile.num_rows;
  }
  if (tile.num_rows > 0) tiles_.push_back(tile);
}

void KvStore::resolve_and_gather(int group, const Tile& tile, bool is_repeat) {
  const int64_t top_k = geometry_.top_k;
  int32_t num_misses = 0;
  ResolveCounters pass;
  launch_resolve({.cache = row_cache(group),
                  .selection = {selection_.row(tile.first_row),
                                {tile.num_rows, top_k},
                                {selection_.strides[0], 1}},
                  .sequence_of_row = view<const int32_t>(
                      rows_.sequence_of_row.data + tile.first_row, tile.num_rows),
                  .block_table = rows_.block_table,
                  .block_tokens = kHostBlockTokens,
                  .slots = view(step_slots_.row(tile.first_row), tile.num_rows, top_k),
                  .misses = orders_,
                  .num_misses = &num_misses,
                  .counters = &pass,
                  .selected_of_sequence = is_repeat ? nullptr : selected_of_sequence_.data(),
                  .missed_of_sequence = is_repeat ? nullptr : missed_of_sequence_.data()},
                 stream_);
  launch_gather({.host = host_records(group),
                 .slots = slots(group),
                 .orders = orders_,
                 .num_orders = &num_misses},
                stream_);
  RowCacheCounters& counters = counters_[group];
  if (!is_repeat) counters.resolve.selected += pass.selected;
  counters.resolve.hit += pass.hit;
  counters.resolve.missed += pass.missed;
  counters.resolve.evicted += pass.evicted;
  counters.fetched_bytes += num_misses * geometry_.groups[group].record_bytes;
}

void KvStore::select(int group, TensorView<const int32_t, 2> selection) {
  selection_ = selection;
  selected_group_ = group;
  cut_tiles(group);
  if (tiles_.size() == 1) resolve_and_gather(group, tiles_.front(), false);
}

SelectedRows KvStore::selected(int layer, int tile_idx) {
  const int group = group_of_layer(layer);
  DHS_CHECK(group == selected_group_, "layer ", layer, " reads group ", group, ", selected is ",
            selected_group_);
  const Tile& tile = tiles_[tile_idx];
  const int layer_in_group = layer - geometry_.groups[group].first_layer;
  // Tiles that do not fit together take turns in the cache, once per layer.
  if (tiles_.size() > 1) resolve_and_gather(group, tile, layer_in_group > 0);
  return {.first_row = tile.first_row,
          .slots = view<const int32_t>(step_slots_.row(tile.first_row), tile.num_rows,
                                       static_cast<int64_t>(geometry_.top_k)),
          .records = slots(group),
          .row_offset = layer_in_group * layout_.row.row_bytes()};
}

// ---- Tests --------------------------------------------------------------------------------------

std::string KvStore::check_invariants() const {
  for (size_t g = 0; g < row_caches_.size(); ++g) {
    const RowCacheState& cache = row_caches_[g];
    if (const char* fault = check_row_cache(cache)) return absl::StrCat("group ", g, ": ", fault);
    const ChunkedItems items = slots(g);
    const HostRecords host = host_records(g);
    for (int32_t slot = 0; slot < cache.head->num_live; ++slot) {
      const int64_t owner = cache.owner_of(slot);
      if (owner == kNoOwner) continue;
      if (std::memcmp(items.at(slot), host.at(owner), static_cast<size_t>(items.item_bytes)) != 0) {
        return absl::StrCat("group ", g, ": slot ", slot, " differs from host row ", owner);
      }
    }
  }
  return {};
}

void KvStore::poison(HostBlockId block, std::byte value) {
  std::memset(host_arena_.data() + block.value * geometry_.host_block_bytes,
              static_cast<int>(value), static_cast<size_t>(geometry_.host_block_bytes));
}

}  // namespace dhs
