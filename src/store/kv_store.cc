// The store's memory and what happens to it between steps.
#include <algorithm>
#include <bit>
#include <cstring>

#include "dhisparse/base.h"
#include "dhisparse/store.h"

namespace dhs {
namespace {

// Of the evicted rows that a group remembers: as many as its row cache has slots, but no more.
constexpr uint64_t kMostEvictedRows = uint64_t{1} << 16;

}  // namespace

KvStore::KvStore(Device& device, KvGeometry geometry, KvCapacity capacity, StoreLayout layout)
    : device_(device),
      geometry_(std::move(geometry)),
      capacity_(capacity),
      layout_(layout),
      stream_(device.stream()),
      resolved_(device.make_event()),
      fetched_(device.make_event()) {}

absl::StatusOr<std::unique_ptr<KvStore>> KvStore::create(Device& device, KvGeometry geometry,
                                                         KvCapacity capacity, StoreLayout layout) {
  DHS_CHECK(layout.draft_page.page_bytes() == geometry.draft_page_bytes, "a draft page of ",
            layout.draft_page.page_bytes(), " bytes, the geometry says ",
            geometry.draft_page_bytes);
  auto store = std::unique_ptr<KvStore>(new KvStore(device, std::move(geometry), capacity, layout));
  DHS_RETURN_IF_ERROR(store->reserve());
  return store;
}

// ---- Reservation --------------------------------------------------------------------------------

absl::Status KvStore::reserve() {
  DHS_ASSIGN_OR_RETURN(device_pool_,
                       device_.allocate(capacity_.num_chunks * capacity_.chunk_bytes));
  DHS_ASSIGN_OR_RETURN(
      host_arena_, device_.allocate_host(capacity_.num_host_blocks * geometry_.host_block_bytes));
  row_caches_.resize(geometry_.groups.size());
  live_rows_.resize(geometry_.groups.size());
  auto in_arena = [&](auto lay_out) {
    return carve(device_, [&](ArenaCarver& carver) { (this->*lay_out)(carver); });
  };
  DHS_ASSIGN_OR_RETURN(state_arena_, in_arena(&KvStore::lay_out_state));
  DHS_ASSIGN_OR_RETURN(step_arena_, in_arena(&KvStore::lay_out_step));
  DHS_ASSIGN_OR_RETURN(counters_arena_, in_arena(&KvStore::lay_out_counters));
  for (size_t g = 0; g < row_caches_.size(); ++g) row_caches_[g].head = &counters_.data[g].head;
  DHS_ASSIGN_OR_RETURN(reports_, device_.allocate_host(2 * counters_arena_.bytes()));
  DHS_RETURN_IF_ERROR(check_scratch());
  // Every chunk may move twice between two steps, every block be retired, and what it keeps for the
  // device come back.
  constexpr int64_t kRounding = 64;
  const int64_t upload_bytes =
      2 * capacity_.num_chunks * kRounding +
      capacity_.num_host_blocks * int64_t{sizeof(int32_t) + 2 * sizeof(FetchOrder)} + 6 * kRounding;
  DHS_ASSIGN_OR_RETURN(uploader_, Uploader::create(device_, upload_bytes));
  index_items_ = {device_pool_.data(), chunk_offsets_.row(std::ssize(row_caches_)),
                  static_cast<int32_t>(geometry_.index_items_per_chunk(capacity_.chunk_bytes)),
                  geometry_.index_item_bytes};
  draft_pages_ = {device_pool_.data(), chunk_offsets_.row(std::ssize(row_caches_) + 1),
                  static_cast<int32_t>(geometry_.draft_pages_per_chunk(capacity_.chunk_bytes)),
                  geometry_.draft_page_bytes};
  for (const RowCacheState& cache : row_caches_) launch_reset_row_cache({cache}, stream_);
  device_.synchronize();
  return absl::OkStatus();
}

// The passes over a row cache work in the stream's scratch and cannot be cut.
absl::Status KvStore::check_scratch() const {
  if (device_.kind() != BackendKind::kCuda) return absl::OkStatus();
  constexpr int64_t kMostEntries = int64_t{1} << 30;
  constexpr int64_t kSmallArrays = int64_t{256} << 10;
  const int64_t entries = layout_.max_query_rows * geometry_.top_k;
  if (entries >= kMostEntries) {
    return absl::InvalidArgumentError(
        absl::StrCat(layout_.max_query_rows, " query rows of a top-k of ", geometry_.top_k,
                     " are more than a GPU pass takes (", kMostEntries,
                     "); lower scheduler.max_batched_tokens"));
  }
  int64_t slots_per_segment = 0;
  for (const RowCacheState& cache : row_caches_) {
    slots_per_segment = std::max<int64_t>(slots_per_segment, cache.slots_per_segment);
  }
  const int64_t needed = std::max(4 * entries, 8 * slots_per_segment) + kSmallArrays;
  if (needed <= stream_.scratch_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "device.scratch is ", stream_.scratch_bytes, " bytes; ", layout_.max_query_rows,
      " query rows of a top-k of ", geometry_.top_k, " and chunks of ", capacity_.chunk_bytes,
      " bytes need ", needed, "; raise it, or lower scheduler.max_batched_tokens or device.chunk"));
}

void KvStore::lay_out_state(ArenaCarver& carver) {
  const int64_t num_host_rows = int64_t{capacity_.num_host_blocks} * kHostBlockTokens;
  for (size_t g = 0; g < row_caches_.size(); ++g) {
    RowCacheState& cache = row_caches_[g];
    const int64_t per_segment = geometry_.records_per_chunk(g, capacity_.chunk_bytes);
    // Never more slots than host rows: a row is resident once.
    const int64_t max_slots =
        per_segment * std::min<int64_t>(capacity_.num_chunks, ceil_div(num_host_rows, per_segment));
    cache.slots_per_segment = static_cast<int32_t>(per_segment);
    cache.slot_of = carver.take<int32_t>(num_host_rows);
    cache.owner_of = carver.take<int64_t>(max_slots);
    cache.last_used = carver.take<uint32_t>(max_slots);
    cache.free_ring = carver.take<int32_t>(max_slots);
    const auto ring_size = static_cast<int64_t>(
        std::min(std::bit_ceil(static_cast<uint64_t>(max_slots)), kMostEvictedRows));
    cache.evicted_rows = carver.take<int64_t>(ring_size);
    cache.evicted_stamps = carver.take<uint32_t>(ring_size);
    cache.evicted_before = carver.take<int64_t>(capacity_.num_host_blocks);
  }
  const int64_t num_tables = std::ssize(row_caches_) + 2;
  chunk_offsets_ = view(carver.take<int64_t>(num_tables * capacity_.num_chunks).data, num_tables,
                        int64_t{capacity_.num_chunks});
}

void KvStore::lay_out_step(ArenaCarver& carver) {
  const int64_t rows = layout_.max_query_rows;
  const int64_t top_k = geometry_.top_k;
  int64_t most_slots = 0;
  for (const RowCacheState& cache : row_caches_) {
    most_slots = std::max(most_slots, cache.owner_of.sizes[0]);
  }
  host_rows_ = carver.take<int64_t>(rows);
  item_of_token_ = carver.take<int32_t>(rows);
  page_of_token_ = carver.take<int32_t>(rows);
  visible_ = carver.take<int32_t>(rows);
  step_slots_ = view(carver.take<int32_t>(rows * top_k).data, rows, top_k);
  miss_of_ = view(carver.take<int32_t>(rows * top_k).data, rows, top_k);
  orders_ = carver.take<FetchOrder>(std::min(most_slots, rows * top_k));
  move_orders_ = carver.take<MoveOrder>(most_slots);
  restore_orders_ = carver.take<FetchOrder>(capacity_.num_host_blocks);
  draft_restore_orders_ =
      carver.take<FetchOrder>(has_draft_pages() ? capacity_.num_host_blocks : 0);
  num_orders_ = carver.take<int32_t>(4);
  retired_blocks_ = carver.take<int32_t>(capacity_.num_host_blocks);
}

void KvStore::lay_out_counters(ArenaCarver& carver) {
  counters_ = carver.take<GroupCounters>(std::ssize(row_caches_));
  selected_of_sequence_ = carver.take<int64_t>(layout_.max_sequences);
  missed_of_sequence_ = carver.take<int64_t>(layout_.max_sequences);
}

ChunkedItems KvStore::slots(int group) const {
  return {device_pool_.data(), chunk_offsets_.row(group), row_caches_[group].slots_per_segment,
          geometry_.groups[group].record_bytes};
}

HostRecords KvStore::host_records(int group) const {
  const GroupGeometry& geometry = geometry_.groups[group];
  return {host_arena_.data(), geometry_.host_block_bytes, geometry.record_offset,
          geometry.record_bytes, kHostBlockTokens};
}

// ---- Step boundary ------------------------------------------------------------------------------

void KvStore::apply(std::span<const HostBlockId> retired, std::span<const ChunkMove> moves,
                    std::span<const BlockRestore> restores) {
  uploader_.begin_step();
  retire(retired);
  const auto index_table = std::ssize(row_caches_);
  for (const ChunkMove& move : moves) {
    const int64_t offset = move.chunk.value * capacity_.chunk_bytes;
    switch (move.kind) {
      case ChunkMove::Kind::kGrowRows:
        set_chunk_offset(move.group, move.segment, offset);
        launch_add_segment({row_caches_[move.group]}, stream_);
        live_rows_[move.group] += row_caches_[move.group].slots_per_segment;
        break;
      case ChunkMove::Kind::kReleaseRows:
        release_rows(move);
        break;
      case ChunkMove::Kind::kGrowIndex:
        set_chunk_offset(index_table, move.segment, offset);
        break;
      case ChunkMove::Kind::kGrowDraft:
        set_chunk_offset(index_table + 1, move.segment, offset);
        break;
      case ChunkMove::Kind::kReleaseIndex:
      case ChunkMove::Kind::kReleaseDraft:
        break;  // what it holds belongs to nobody
    }
  }
  restore(restores, false);
  if (has_draft_pages()) restore(restores, true);
}

void KvStore::set_chunk_offset(int64_t table, int32_t segment, int64_t offset) {
  uploader_.upload(std::span<const int64_t>(&offset, 1), &chunk_offsets_(table, segment), stream_);
}

void KvStore::retire(std::span<const HostBlockId> blocks) {
  if (blocks.empty()) return;
  static_assert(sizeof(HostBlockId) == sizeof(int32_t));
  uploader_.upload(std::span(reinterpret_cast<const int32_t*>(blocks.data()), blocks.size()),
                   retired_blocks_.data, stream_);
  for (const RowCacheState& cache : row_caches_) {
    launch_invalidate({.cache = cache,
                       .blocks = view<const int32_t>(retired_blocks_.data, std::ssize(blocks)),
                       .block_tokens = kHostBlockTokens},
                      stream_);
  }
}

// An index item, or a draft page, is the record of a host block that counts as one token.
void KvStore::restore(std::span<const BlockRestore> restores, bool is_draft) {
  std::vector<FetchOrder> orders;
  for (const BlockRestore& restore : restores) {
    if (restore.is_draft == is_draft) orders.push_back({restore.block.value, restore.index_item});
  }
  if (orders.empty()) return;
  const auto count = static_cast<int32_t>(std::ssize(orders));
  FetchOrder* const on_device = is_draft ? draft_restore_orders_.data : restore_orders_.data;
  int32_t* const count_on_device = &num_orders_(is_draft ? 3 : 2);
  const ChunkedItems items = is_draft ? draft_pages_ : index_items_;
  const int64_t offset = is_draft ? geometry_.draft_page_offset : geometry_.index_item_offset;
  uploader_.upload(std::span<const FetchOrder>(orders), on_device, stream_);
  uploader_.upload(std::span<const int32_t>(&count, 1), count_on_device, stream_);
  launch_gather(
      {.host = {host_arena_.data(), geometry_.host_block_bytes, offset, items.item_bytes, 1},
       .slots = items,
       .orders = view<const FetchOrder>(on_device, count),
       .num_orders = count_on_device},
      stream_);
  device_.cross_link(count_on_device, items.item_bytes, stream_);
}

void KvStore::release_rows(const ChunkMove& move) {
  const RowCacheState& cache = row_caches_[move.group];
  DHS_CHECK(live_rows_[move.group] == (move.segment + 1) * int64_t{cache.slots_per_segment},
            "only the last segment of a row cache can be released");
  live_rows_[move.group] -= cache.slots_per_segment;
  const auto moves = view(move_orders_.data, int64_t{cache.slots_per_segment});
  launch_release_segment({.cache = cache,
                          .moves = moves,
                          .num_moves = &num_orders_(1),
                          .num_dropped = &counters_.data[move.group].released},
                         stream_);
  launch_move_records({.slots = slots(move.group), .orders = moves, .num_orders = &num_orders_(1)},
                      stream_);
}

void KvStore::refill(int group, int64_t max_rows) {
  DHS_CHECK(!fetch_in_flight_, "a refill within a step");
  const int64_t most = std::min(max_rows, orders_.sizes[0]);
  if (most <= 0) return;
  launch_refill({.cache = row_caches_[group],
                 .block_tokens = kHostBlockTokens,
                 .orders = view(orders_.data, most),
                 .num_orders = &num_orders_(0),
                 .num_refilled = &counters_.data[group].refilled},
                stream_);
  gather(group, 0, stream_);
}

// ---- Reports ------------------------------------------------------------------------------------

void KvStore::queue_report(int place) {
  DHS_CHECK(place == 0 || place == 1, "report place ", place);
  device_.copy(reports_.data() + place * counters_arena_.bytes(), counters_arena_.data(),
               counters_arena_.bytes(), stream_);
}

namespace {

// The copy of a device array within a report.
template <class T>
const T& in_report(const MemoryRange& reports, const MemoryRange& arena, int place,
                   const T& original) {
  const int64_t offset = reinterpret_cast<const std::byte*>(&original) - arena.data();
  return *reinterpret_cast<const T*>(reports.data() + place * arena.bytes() + offset);
}

}  // namespace

const KvStore::GroupCounters& KvStore::reported(int place, int group) const {
  return in_report(reports_, counters_arena_, place, counters_(group));
}

void KvStore::learn(int place, bool is_decode) {
  ResolveCounters now;
  for (size_t g = 0; g < row_caches_.size(); ++g) {
    const ResolveCounters& first = reported(place, g).first;
    now.selected += first.selected;
    now.missed += first.missed;
  }
  // Selected entries stand for query rows: top_k of them are one row, but for short contexts.
  const int64_t selected = now.selected - learned_.selected;
  if (is_decode && selected > 0) {
    misses_per_row_ = static_cast<double>(now.missed - learned_.missed) * geometry_.top_k /
                      static_cast<double>(selected);
  }
  learned_ = now;
}

RowCacheCounters KvStore::counters(int place, int group) const {
  const GroupCounters& counted = reported(place, group);
  RowCacheCounters counters;
  counters.resolve.selected = counted.first.selected;
  counters.resolve.hit = counted.first.hit + counted.repeat.hit;
  counters.resolve.missed = counted.first.missed + counted.repeat.missed;
  counters.resolve.evicted = counted.first.evicted + counted.repeat.evicted;
  counters.fetched_bytes = counters.resolve.missed * geometry_.groups[group].record_bytes;
  counters.released = counted.released;
  counters.refilled = counted.refilled;
  counters.refilled_bytes = counted.refilled * geometry_.groups[group].record_bytes;
  return counters;
}

int64_t KvStore::resident_rows(int place, int group) const {
  const RowCacheHead& head = reported(place, group).head;
  return head.num_live - head.num_free;
}

int64_t KvStore::selected_of_sequence(int place, int64_t sequence) const {
  return in_report(reports_, counters_arena_, place, selected_of_sequence_(sequence));
}

int64_t KvStore::missed_of_sequence(int place, int64_t sequence) const {
  return in_report(reports_, counters_arena_, place, missed_of_sequence_(sequence));
}

// ---- Tests --------------------------------------------------------------------------------------

std::string KvStore::check_invariants() const {
  for (size_t g = 0; g < row_caches_.size(); ++g) {
    const RowCacheState& cache = row_caches_[g];
    if (const char* fault = check_row_cache(cache)) return absl::StrCat("group ", g, ": ", fault);
    if (cache.head->num_live != live_rows_[g]) return absl::StrCat("group ", g, ": lost a segment");
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

std::string KvStore::row_cache_state() const {
  std::string state;
  for (const MemoryRange* range : {&state_arena_, &counters_arena_, &host_arena_}) {
    state.append(range->as<const char>(), static_cast<size_t>(range->bytes()));
  }
  return state;
}

void KvStore::poison(HostBlockId block, std::byte value) {
  std::memset(host_arena_.data() + block.value * geometry_.host_block_bytes,
              static_cast<int>(value), static_cast<size_t>(geometry_.host_block_bytes));
}

}  // namespace dhs
