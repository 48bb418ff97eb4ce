// What the store does within a step.
#include <algorithm>

#include "dhisparse/base.h"
#include "dhisparse/store.h"
#include "kernels/append/append.h"
#include "kernels/sparse_attention/sparse_attention.h"
#include "kernels/step_rows/step_rows.h"
#include "store/step_demand.h"

namespace dhs {

int KvStore::group_of_layer(int layer) const {
  const auto& groups = geometry_.groups;
  const auto after =
      std::upper_bound(groups.begin(), groups.end(), layer,
                       [](int wanted, const auto& group) { return wanted < group.first_layer; });
  DHS_CHECK(after != groups.begin(), "layer ", layer, " is in no index group");
  return static_cast<int>(after - groups.begin()) - 1;
}

bool KvStore::fits_one_pass(const QueryRows& rows) const {
  const int64_t needed = most_rows_needed(rows, geometry_.top_k);
  return std::all_of(live_rows_.begin(), live_rows_.end(),
                     [&](int64_t live) { return needed <= live; });
}

bool KvStore::choose_retrieval(int64_t num_rows) {
  is_fused_ = layout_.retrieval == Retrieval::kFused;
  if (layout_.retrieval != Retrieval::kAuto || device_.kind() != BackendKind::kCuda) {
    return is_fused_;
  }
  int64_t num_layers = 0;
  for (const GroupGeometry& group : geometry_.groups) num_layers += group.num_layers;
  const auto num_groups = std::ssize(geometry_.groups);
  const int64_t layers_per_group = std::max<int64_t>(1, num_layers / num_groups);
  is_fused_ = prefer_fused(
      {.num_query_rows = num_rows,
       .expected_misses = static_cast<int64_t>(misses_per_row_ * static_cast<double>(num_rows)),
       .num_heads = layout_.num_heads,
       .top_k = geometry_.top_k,
       .num_layers = static_cast<int32_t>(layers_per_group),
       .record_bytes = layers_per_group * layout_.row.row_bytes(),
       .num_sms = stream_.num_sms,
       .compute_capability = stream_.compute_capability});
  return is_fused_;
}

void KvStore::begin_step(const QueryRows& rows) {
  const int64_t sequence_bytes = layout_.max_sequences * static_cast<int64_t>(sizeof(int64_t));
  device_.fill(selected_of_sequence_.data, std::byte{0}, sequence_bytes, stream_);
  device_.fill(missed_of_sequence_.data, std::byte{0}, sequence_bytes, stream_);
  take_rows(rows);
  is_continued_ = false;
}

void KvStore::continue_step(const QueryRows& rows) {
  take_rows(rows);
  is_continued_ = true;
}

void KvStore::take_rows(const QueryRows& rows) {
  DHS_CHECK(rows.num_rows() <= layout_.max_query_rows, rows.num_rows(), " query rows, limit ",
            layout_.max_query_rows);
  DHS_CHECK(rows.num_sequences() <= layout_.max_sequences, rows.num_sequences(),
            " sequences, limit ", layout_.max_sequences);
  DHS_CHECK(std::ssize(rows.host_positions) == rows.num_rows() &&
                std::ssize(rows.host_sequence_of_row) == rows.num_rows(),
            "host views of ", rows.host_positions.size(), " rows, ", rows.num_rows(), " queued");
  DHS_CHECK(has_draft_pages() == (rows.page_table.data != nullptr),
            "a page table where drafts have no pages, or none where they have");
  rows_ = rows;
  selected_group_ = -1;
  tiles_.clear();
  launch_step_rows({.positions = rows.positions,
                    .sequence_of_row = rows.sequence_of_row,
                    .block_table = rows.block_table,
                    .item_table = rows.item_table,
                    .page_table = rows.page_table,
                    .block_tokens = kHostBlockTokens,
                    .host_rows = view(host_rows_.data, rows.num_rows()),
                    .item_of_token = view(item_of_token_.data, rows.num_rows()),
                    .page_of_token = view(page_of_token_.data, rows.num_rows()),
                    .visible = view(visible_.data, rows.num_rows())},
                   stream_);
  for (const RowCacheState& cache : row_caches_) launch_begin_step({cache}, stream_);
}

TensorView<const int32_t, 1> KvStore::visible() const {
  return view<const int32_t>(visible_.data, rows_.num_rows());
}

// ---- Append -------------------------------------------------------------------------------------

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

void KvStore::append_draft_kv(TensorView<const float, 2> kv) {
  launch_append_draft_kv(
      {.layout = layout_.draft_page,
       .host_base = host_arena_.data(),
       .host_block_bytes = geometry_.host_block_bytes,
       .host_page_offset = geometry_.draft_page_offset,
       .pages = draft_pages_,
       .host_rows = view<const int64_t>(host_rows_.data, rows_.num_rows()),
       .page_of_token = view<const int32_t>(page_of_token_.data, rows_.num_rows()),
       .kv = kv},
      stream_);
}

// The step's own rows will be wanted soonest of all: they take slots without a fetch, and keep them
// through the pass that follows where everything fits together.
void KvStore::claim_new_rows(int group) {
  launch_claim(
      {.cache = row_caches_[group],
       .host_rows = view<const int64_t>(host_rows_.data, rows_.num_rows()),
       .protect_in_next_pass = most_rows_needed(rows_, geometry_.top_k) <= live_rows_[group],
       .counters = &counters_.data[group].first},
      stream_);
}

void KvStore::append_rows(int layer, TensorView<const float, 2> latents,
                          TensorView<const float, 2> ropes) {
  const int group = group_of_layer(layer);
  const int layer_in_group = layer - geometry_.groups[group].first_layer;
  if (layer_in_group == 0) claim_new_rows(group);
  // A fetch still in flight may hold the old bytes of a row that this layer is about to write.
  if (fetch_in_flight_) fetched_->block(stream_);
  fetch_in_flight_ = false;
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

// ---- Select -------------------------------------------------------------------------------------

void KvStore::resolve(int group, const RowTile& tile, bool is_repeat) {
  const int64_t top_k = geometry_.top_k;
  GroupCounters& counters = counters_.data[group];
  launch_resolve({.cache = row_caches_[group],
                  .selection = {selection_.row(tile.first_row),
                                {tile.num_rows, top_k},
                                {selection_.strides[0], 1}},
                  .sequence_of_row = view<const int32_t>(
                      rows_.sequence_of_row.data + tile.first_row, tile.num_rows),
                  .block_table = rows_.block_table,
                  .block_tokens = kHostBlockTokens,
                  .slots = view(step_slots_.row(tile.first_row), tile.num_rows, top_k),
                  .miss_of = view(miss_of_.row(tile.first_row), tile.num_rows, top_k),
                  .misses = orders_,
                  .num_misses = &num_orders_(0),
                  .counters = is_repeat ? &counters.repeat : &counters.first,
                  .selected_of_sequence = is_repeat ? nullptr : selected_of_sequence_.data,
                  .missed_of_sequence = is_repeat ? nullptr : missed_of_sequence_.data},
                 stream_);
}

void KvStore::gather(int group, int64_t first_byte, Stream stream) {
  launch_gather({.host = host_records(group),
                 .slots = slots(group),
                 .orders = orders_,
                 .num_orders = &num_orders_(0),
                 .first_byte = first_byte},
                stream);
  device_.cross_link(&num_orders_(0), geometry_.groups[group].record_bytes - first_byte, stream);
}

void KvStore::select(int group, TensorView<const int32_t, 2> selection) {
  if (watcher_ && !is_continued_) watcher_(group, selection);
  selection_ = selection;
  selected_group_ = group;
  cut_tiles(rows_, geometry_.top_k, live_rows_[group], tiles_);
  if (tiles_.size() != 1) return;
  resolve(group, tiles_.front(), false);
  if (!is_fused_) return gather(group, 0, stream_);
  if (geometry_.groups[group].num_layers == 1) return;
  // Attention fetches the first layer's rows itself; the later layers' come meanwhile.
  resolved_->record(stream_);
  resolved_->block(device_.copy_stream());
  gather(group, layout_.row.row_bytes(), device_.copy_stream());
  fetched_->record(device_.copy_stream());
  fetch_in_flight_ = true;
}

SelectedRows KvStore::selected(int layer, int tile_idx) {
  const int group = group_of_layer(layer);
  DHS_CHECK(group == selected_group_, "layer ", layer, " reads group ", group, ", selected is ",
            selected_group_);
  const RowTile& tile = tiles_[tile_idx];
  const int layer_in_group = layer - geometry_.groups[group].first_layer;
  // Tiles that do not fit together take turns in the cache, once per layer.
  if (tiles_.size() > 1) {
    resolve(group, tile, layer_in_group > 0);
    gather(group, 0, stream_);
  }
  const int64_t top_k = geometry_.top_k;
  SelectedRows rows{
      .first_row = tile.first_row,
      .slots = view<const int32_t>(step_slots_.row(tile.first_row), tile.num_rows, top_k),
      .records = slots(group),
      .row_offset = layer_in_group * layout_.row.row_bytes()};
  if (is_fused_ && tiles_.size() == 1 && layer_in_group == 0) {
    rows.miss_of = view<const int32_t>(miss_of_.row(tile.first_row), tile.num_rows, top_k);
    rows.orders = orders_;
    rows.host = host_records(group);
  }
  return rows;
}

}  // namespace dhs
