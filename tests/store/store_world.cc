#include "store_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

namespace dhs {
namespace {

constexpr int32_t kLatentDim = 20;
constexpr int32_t kRopeDim = 6;
constexpr int32_t kIndexDim = 8;
constexpr int64_t kMaxSequences = 16;

// What a value belongs to, beside its token: layers have kinds 0, 1, ...; the others lie above.
constexpr int kRopeKind = 1000;
constexpr int kIndexKind = 2000;
constexpr int kDraftKind = 3000;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

StoreLayout layout_of(const WorldShape& shape) {
  return {.row = {shape.row_format, kLatentDim, kRopeDim},
          .index_key = {shape.index_format, kIndexDim, kHostBlockTokens},
          .draft_page = shape.draft_page,
          .max_query_rows = shape.max_query_rows,
          .max_sequences = kMaxSequences,
          .retrieval = shape.retrieval};
}

bool has_canary(const std::byte* bytes, int64_t count) {
  return std::find(bytes, bytes + count, kCanary) != bytes + count;
}

}  // namespace

StoreWorld::StoreWorld(const WorldShape& shape, uint32_t seed)
    : shape_(shape),
      layout_(layout_of(shape)),
      geometry_(make_geometry(shape.layers_per_group, layout_.row.row_bytes(),
                              layout_.index_key.page_bytes(), shape.top_k,
                              {shape.draft_page.page_bytes(), shape.draft_window})),
      kv_(geometry_, {shape.num_host_blocks, shape.num_chunks, shape.chunk_bytes}, shape.residency),
      random_(seed),
      num_tiles_(geometry_.groups.size()),
      missed_(geometry_.groups.size()) {
  auto store = KvStore::create(device_, geometry_, kv_.capacity(), layout_);
  EXPECT_TRUE(store.ok()) << store.status();
  store_ = *std::move(store);
  const int64_t pool_bytes = shape.num_chunks * shape.chunk_bytes;
  pool_ = device_.device_memory(pool_bytes);
  host_ = device_.host_reservations().front().data;
  // Memory that nobody wrote must not pass for zeros that somebody did.
  std::fill_n(pool_, pool_bytes, kCanary);
  std::fill_n(host_, device_.host_reservations().front().bytes, kCanary);
}

// ---- Sequences ----------------------------------------------------------------------------------

std::optional<int> StoreWorld::admit(int64_t max_tokens, int64_t device_tokens) {
  std::optional<SequenceMemory> memory =
      kv_.admit({.max_tokens = max_tokens, .device_tokens = device_tokens});
  if (!memory.has_value()) return std::nullopt;
  sequences_[num_sequences_].memory = *std::move(memory);
  return num_sequences_++;
}

bool StoreWorld::cover(int sequence, int64_t tokens) {
  Sequence& one = sequences_.at(sequence);
  return kv_.cover(one.memory, tokens, one.num_tokens, one.num_tokens + 1);
}

void StoreWorld::release(int sequence) {
  for (HostBlockId block : sequences_.at(sequence).memory.blocks()) {
    const HostRow first = HostRow{block.value} * kHostBlockTokens;
    tokens_.erase(tokens_.lower_bound(first), tokens_.lower_bound(first + kHostBlockTokens));
  }
  sequences_.erase(sequence);
}

void StoreWorld::settle() {
  const std::vector<HostBlockId> retired = kv_.take_retired_blocks();
  moves_ = kv_.rebalance();
  store_->apply(retired, moves_, kv_.take_restores());
  device_.synchronize();
  for (HostBlockId block : retired) store_->poison(block, kCanary);
  dirty_released_chunks();
  for (size_t group = 0; group < geometry_.groups.size(); ++group) {
    if (shape_.refill_rows > 0) store_->refill(static_cast<int>(group), shape_.refill_rows);
  }
}

// A chunk that left a row cache, or the draft pages, and went to nobody yet: whoever still reads it
// sees canaries.
void StoreWorld::dirty_released_chunks() {
  std::set<ChunkId> released;
  for (const ChunkMove& move : moves_) {
    if (move.kind == ChunkMove::Kind::kReleaseRows) ++num_released_chunks_;
    if (move.kind == ChunkMove::Kind::kReleaseRows || move.kind == ChunkMove::Kind::kReleaseDraft) {
      released.insert(move.chunk);
    } else {
      released.erase(move.chunk);
    }
  }
  for (ChunkId chunk : released) {
    std::fill_n(pool_ + chunk.value * shape_.chunk_bytes, shape_.chunk_bytes, kCanary);
  }
}

HostRow StoreWorld::host_row(int sequence, int32_t position) const {
  const HostBlockId block = sequences_.at(sequence).memory.blocks()[position / kHostBlockTokens];
  return HostRow{block.value} * kHostBlockTokens + position % kHostBlockTokens;
}

RowCacheCounters StoreWorld::counters(int group) {
  store_->queue_report(0);
  device_.synchronize();
  return store_->counters(0, group);
}

int64_t StoreWorld::resident_rows(int group) {
  store_->queue_report(0);
  device_.synchronize();
  return store_->resident_rows(0, group);
}

int64_t StoreWorld::selected_of(int sequence_in_step) {
  store_->queue_report(0);
  device_.synchronize();
  return store_->selected_of_sequence(0, sequence_in_step);
}

int64_t StoreWorld::missed_of(int sequence_in_step) {
  store_->queue_report(0);
  device_.synchronize();
  return store_->missed_of_sequence(0, sequence_in_step);
}

// ---- Values -------------------------------------------------------------------------------------

std::vector<float> StoreWorld::values(const Token& token, int kind, int count) const {
  const uint64_t name = mix(mix(mix(token.sequence + 1) + token.position) + token.version);
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) {
    const auto digit = static_cast<int>(mix(mix(name + kind) + i) % 31);
    values[i] = static_cast<float>(digit - 15);
  }
  return values;
}

TensorView<const float, 2> StoreWorld::rows_of_step(int kind, int count) {
  std::vector<float> all;
  for (int64_t row = 0; row < rows_.view.num_rows(); ++row) {
    const int sequence = rows_.sequences[rows_.sequence_of_row[row]];
    const Token& token = tokens_.at(host_row(sequence, rows_.positions[row]));
    const std::vector<float> one = values(token, kind, count);
    all.insert(all.end(), one.begin(), one.end());
  }
  values_of_step_.emplace_back(all);
  return view<const float>(values_of_step_.back().data(), rows_.view.num_rows(), count);
}

// ---- A step -------------------------------------------------------------------------------------

void StoreWorld::step(const std::vector<StepPart>& parts, const Choice& choice) {
  settle();
  lay_out(parts);
  store_->choose_retrieval(rows_.view.num_rows());
  store_->begin_step(rows_.view);
  for (size_t group = 0; group < geometry_.groups.size(); ++group) {
    const RowCacheCounters before = counters(group);
    choose(static_cast<int>(group), choice);
    run_group(static_cast<int>(group));
    if (testing::Test::HasFatalFailure()) return;
    check_counters(static_cast<int>(group), before);
  }
  append_draft_kv();
  device_.synchronize();
  check_index_pages();
  check_draft_pages();
  check_host_rows();
  ASSERT_EQ(kv_.check_invariants(), "");
  ASSERT_EQ(store_->check_invariants(), "");
}

void StoreWorld::lay_out(const std::vector<StepPart>& parts) {
  device_.synchronize();  // the step before may still read its arrays
  rows_ = StepRows();
  values_of_step_.clear();
  size_t max_num_blocks = 0;
  for (const StepPart& part : parts) {
    const Sequence& sequence = sequences_.at(part.sequence);
    max_num_blocks = std::max(max_num_blocks, sequence.memory.blocks().size());
  }
  for (const StepPart& part : parts) {
    Sequence& sequence = sequences_.at(part.sequence);
    const auto index = static_cast<int32_t>(rows_.sequences.size());
    rows_.sequences.push_back(part.sequence);
    const auto first = static_cast<int32_t>(sequence.num_tokens) - part.rewind;
    sequence.num_tokens = first + part.rewind + part.num_new;
    for (int32_t position = first; position < sequence.num_tokens; ++position) {
      rows_.sequence_of_row.push_back(index);
      rows_.positions.push_back(position);
      const auto [token, is_new] =
          tokens_.try_emplace(host_row(part.sequence, position), Token{part.sequence, position});
      if (!is_new) ++token->second.version;
    }
    const auto& memory = sequence.memory;
    for (size_t i = 0; i < max_num_blocks; ++i) {
      const bool inside = i < memory.blocks().size();
      rows_.block_table.push_back(inside ? memory.blocks()[i].value : -1);
      const bool is_covered = i < memory.index_items().size();
      rows_.item_table.push_back(is_covered ? memory.index_items()[i] : -1);
      const bool may_have_page = i < memory.draft_pages().size();
      rows_.page_table.push_back(may_have_page ? memory.draft_pages()[i] : -1);
    }
  }
  const auto num_sequences = std::ssize(rows_.sequences);
  auto on_device = [&](const std::vector<int32_t>& table) {
    return static_cast<const int32_t*>(rows_.on_device.emplace_back(table).data());
  };
  const auto num_rows = std::ssize(rows_.positions);
  rows_.view = {.sequence_of_row = view(on_device(rows_.sequence_of_row), num_rows),
                .positions = view(on_device(rows_.positions), num_rows),
                .block_table = view(on_device(rows_.block_table), num_sequences, max_num_blocks),
                .item_table = view(on_device(rows_.item_table), num_sequences, max_num_blocks),
                .host_sequence_of_row = rows_.sequence_of_row,
                .host_positions = rows_.positions};
  if (geometry_.draft_page_bytes == 0) return;
  rows_.view.page_table = view(on_device(rows_.page_table), num_sequences, max_num_blocks);
}

void StoreWorld::append_layer(int layer) {
  const auto latents = rows_of_step(layer, kLatentDim);
  store_->append_rows(layer, latents, rows_of_step(kRopeKind + layer, kRopeDim));
}

void StoreWorld::append_draft_kv() {
  const DraftPageLayout& page = layout_.draft_page;
  if (page.num_layers == 0) return;
  const auto count = static_cast<int>(page.num_layers * 2 * page.width());
  store_->append_draft_kv(rows_of_step(kDraftKind, count));
}

void StoreWorld::choose(int group, const Choice& choice) {
  selection_.assign(rows_.view.num_rows() * shape_.top_k, -1);
  for (int64_t row = 0; row < rows_.view.num_rows(); ++row) {
    const int32_t position = rows_.positions[row];
    std::vector<int32_t> chosen;
    if (choice) {
      chosen = choice(group, rows_.sequences[rows_.sequence_of_row[row]], position);
    } else {
      std::set<int32_t> wanted = {position};
      const auto count = std::min<size_t>(position + 1, 1 + random_() % shape_.top_k);
      while (wanted.size() < count) wanted.insert(static_cast<int32_t>(random_() % (position + 1)));
      chosen.assign(wanted.begin(), wanted.end());
    }
    std::copy(chosen.begin(), chosen.end(), selection_.begin() + row * shape_.top_k);
  }
}

void StoreWorld::run_group(int group) {
  const GroupGeometry& geometry = geometry_.groups[group];
  const int64_t num_rows = rows_.view.num_rows();
  store_->append_index_keys(group, rows_of_step(kIndexKind + group, kIndexDim));
  append_layer(geometry.first_layer);
  const auto& selection = rows_.on_device.emplace_back(selection_);
  store_->select(group, view<const int32_t>(selection.data(), num_rows, shape_.top_k));
  num_tiles_[group] = store_->num_tiles();
  most_tiles_ = std::max(most_tiles_, store_->num_tiles());
  for (int i = 0; i < geometry.num_layers; ++i) {
    if (i > 0) append_layer(geometry.first_layer + i);
    check_layer(group, geometry.first_layer + i);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// ---- Checks -------------------------------------------------------------------------------------

// Tiles cover the query rows once, in order, and every selected row is the one the position names.
void StoreWorld::check_layer(int group, int layer) {
  int64_t next_row = 0;
  for (int tile = 0; tile < store_->num_tiles(); ++tile) {
    const SelectedRows rows = store_->selected(layer, tile);
    fetch_what_is_left_to_attention(rows);
    device_.synchronize();
    ASSERT_EQ(rows.first_row, next_row);
    ASSERT_GT(rows.slots.sizes[0], 0);
    ASSERT_EQ(rows.slots.sizes[1], shape_.top_k);
    ASSERT_EQ(rows.records.item_bytes, geometry_.groups[group].record_bytes);
    next_row += rows.slots.sizes[0];
    for (int64_t row = 0; row < rows.slots.sizes[0]; ++row) {
      for (int64_t column = 0; column < shape_.top_k; ++column) {
        check_slot(rows, row, column, layer);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  ASSERT_EQ(next_row, rows_.view.num_rows());
}

// What fused attention does with the rows that a store leaves to it.
void StoreWorld::fetch_what_is_left_to_attention(const SelectedRows& rows) {
  if (rows.miss_of.data == nullptr) return;
  device_.synchronize();
  for (int64_t row = 0; row < rows.miss_of.sizes[0]; ++row) {
    for (int64_t column = 0; column < shape_.top_k; ++column) {
      const int32_t miss = rows.miss_of(row, column);
      if (miss < 0) continue;
      const FetchOrder& order = rows.orders(miss / 2);
      std::memcpy(rows.records.at(order.slot), rows.host.at(order.host_row),
                  layout_.row.row_bytes());
    }
  }
}

void StoreWorld::check_slot(const SelectedRows& rows, int64_t row, int64_t column, int layer) {
  const int64_t step_row = rows.first_row + row;
  const int32_t position = selection_[step_row * shape_.top_k + column];
  const int32_t slot = rows.slots(row, column);
  if (position < 0) {
    ASSERT_EQ(slot, -1) << "padding got a slot";
    return;
  }
  ASSERT_GE(slot, 0) << "position " << position << " got no slot";
  const int sequence = rows_.sequences[rows_.sequence_of_row[step_row]];
  check_row(tokens_.at(host_row(sequence, position)), rows.records.at(slot) + rows.row_offset,
            layer);
}

void StoreWorld::check_row(const Token& token, const std::byte* row, int layer) {
  ASSERT_FALSE(has_canary(row, layout_.row.row_bytes()))
      << "a canary in layer " << layer << " of sequence " << token.sequence << ", position "
      << token.position;
  std::vector<float> latent(kLatentDim), rope(kRopeDim);
  decode_row(layout_.row, row, latent.data(), rope.data());
  ASSERT_EQ(latent, values(token, layer, kLatentDim))
      << "layer " << layer << " of sequence " << token.sequence << ", position " << token.position;
  ASSERT_EQ(rope, values(token, kRopeKind + layer, kRopeDim))
      << "layer " << layer << " of sequence " << token.sequence << ", position " << token.position;
}

void StoreWorld::check_counters(int group, const RowCacheCounters& before) {
  const RowCacheCounters& after = counters(group);
  missed_[group] = after.resolve.missed - before.resolve.missed;
  EXPECT_EQ(after.fetched_bytes - before.fetched_bytes,
            missed_[group] * geometry_.groups[group].record_bytes);
  std::set<HostRow> distinct;
  int64_t selected = 0;
  for (int64_t i = 0; i < std::ssize(selection_); ++i) {
    if (selection_[i] < 0) continue;
    ++selected;
    const int sequence = rows_.sequences[rows_.sequence_of_row[i / shape_.top_k]];
    distinct.insert(host_row(sequence, selection_[i]));
  }
  EXPECT_GE(after.resolve.evicted, before.resolve.evicted);
  EXPECT_LE(resident_rows(group), store_->capacity_rows(group));
  EXPECT_EQ(after.resolve.selected - before.resolve.selected, selected);
  if (num_tiles_[group] > 1) return;  // each layer resolves its tiles again
  EXPECT_EQ(after.resolve.hit - before.resolve.hit + missed_[group], std::ssize(distinct));
  EXPECT_LE(missed_[group], std::ssize(distinct));
}

// Both tiers' index keys of every token written so far.
void StoreWorld::check_index_pages() {
  const ChunkedItems pages = store_->index_items();
  for (const auto& [number, sequence] : sequences_) {
    for (int32_t position = 0; position < sequence.num_tokens; ++position) {
      const Token& token = tokens_.at(host_row(number, position));
      const int32_t block = position / kHostBlockTokens;
      if (block >= std::ssize(sequence.memory.index_items())) break;
      const std::byte* device_item = pages.at(sequence.memory.index_items()[block]);
      const std::byte* host_item =
          host_ + sequence.memory.blocks()[block].value * geometry_.host_block_bytes +
          geometry_.index_item_offset;
      for (size_t group = 0; group < geometry_.groups.size(); ++group) {
        const int64_t offset = geometry_.groups[group].page_offset;
        check_page(token, device_item + offset, static_cast<int>(group));
        check_page(token, host_item + offset, static_cast<int>(group));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void StoreWorld::check_page(const Token& token, const std::byte* page, int group) {
  std::vector<float> key(kIndexDim);
  decode_index_key(layout_.index_key, page, token.position % kHostBlockTokens, key.data());
  ASSERT_EQ(key, values(token, kIndexKind + group, kIndexDim))
      << "group " << group << ", sequence " << token.sequence << ", position " << token.position;
}

// The draft's context of every token written so far, in the host block and in the page, if there is
// one.
void StoreWorld::check_draft_pages() {
  if (layout_.draft_page.num_layers == 0) return;
  for (const auto& [number, sequence] : sequences_) {
    const auto pages = sequence.memory.draft_pages();
    for (int32_t position = 0; position < sequence.num_tokens; ++position) {
      const Token& token = tokens_.at(host_row(number, position));
      const int32_t block = position / kHostBlockTokens;
      check_draft_page(token,
                       host_ + sequence.memory.blocks()[block].value * geometry_.host_block_bytes +
                           geometry_.draft_page_offset);
      if (block < std::ssize(pages) && pages[block] >= 0) {
        check_draft_page(token, store_->draft_pages().at(pages[block]));
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

void StoreWorld::check_draft_page(const Token& token, const std::byte* page) {
  const DraftPageLayout& layout = layout_.draft_page;
  std::vector<float> kv;
  for (int32_t part = 0; part < layout.num_layers * 2; ++part) {
    std::vector<float> one(layout.width());
    const int64_t offset =
        layout.offset(part / 2, part % 2 == 1, token.position % kHostBlockTokens);
    convert_to_f32(layout.dtype, page + offset, layout.width(), one.data());
    kv.insert(kv.end(), one.begin(), one.end());
  }
  ASSERT_EQ(kv, values(token, kDraftKind, static_cast<int>(kv.size())))
      << "draft page of sequence " << token.sequence << ", position " << token.position;
}

// The host tier is complete: every layer of every token, wherever its slot is.
void StoreWorld::check_host_rows() {
  for (const auto& [row, token] : tokens_) {
    for (const GroupGeometry& group : geometry_.groups) {
      const std::byte* record = host_ + row / kHostBlockTokens * geometry_.host_block_bytes +
                                group.record_offset + row % kHostBlockTokens * group.record_bytes;
      for (int i = 0; i < group.num_layers; ++i) {
        check_row(token, record + i * layout_.row.row_bytes(), group.first_layer + i);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace dhs
