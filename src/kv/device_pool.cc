#include "kv/device_pool.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dhs {
namespace {

// A pool's worth of chunks changes groups in no fewer steps.
constexpr int64_t kStepsToEvenOut = 1024;
// How much fuller for its weight the group that gives must stay.
constexpr double kWorthEvening = 1.1;

int32_t pages_per_segment(const KvGeometry& geometry, const KvCapacity& capacity) {
  if (geometry.draft_page_bytes == 0) return 1;  // none is ever held
  return static_cast<int32_t>(geometry.draft_pages_per_chunk(capacity.chunk_bytes));
}

}  // namespace

DevicePool::DevicePool(const KvGeometry& geometry, const KvCapacity& capacity,
                       const ResidencyConfig& residency)
    : geometry_(geometry),
      num_chunks_(capacity.num_chunks),
      chunk_bytes_(capacity.chunk_bytes),
      residency_(residency),
      decode_rows_(geometry.decode_rows),
      items_(capacity.num_chunks,
             static_cast<int32_t>(geometry.index_items_per_chunk(capacity.chunk_bytes))),
      pages_(capacity.num_chunks, pages_per_segment(geometry, capacity)),
      rows_(geometry.groups.size()),
      row_moves_(geometry.groups.size()),
      weights_(geometry.groups.size(), 1.0) {
  for (int32_t i = num_chunks_ - 1; i >= 0; --i) free_.emplace_back(i);
}

// ---- Requirements -------------------------------------------------------------------------------

DevicePool::Need DevicePool::need_of(int64_t num_tokens, int64_t decode_rows) const {
  const int64_t num_blocks = ceil_div(num_tokens, kHostBlockTokens);
  Need need{.items = num_blocks, .pages = geometry_.max_num_draft_pages(num_blocks)};
  const int64_t selected = std::min(decode_rows, num_tokens);
  switch (residency_.mode) {
    case ResidencyMode::kAdaptive:
      need.own_rows = selected;
      break;
    case ResidencyMode::kFixed:
      need.own_rows = std::max(selected, std::min(num_tokens, residency_.fixed_rows_per_request));
      break;
    case ResidencyMode::kResident:
      break;
  }
  return need;
}

int64_t DevicePool::required_rows(int64_t own_rows, int64_t items) const {
  return residency_.mode == ResidencyMode::kResident ? items * kHostBlockTokens : own_rows;
}

int64_t DevicePool::chunks_of_rows(int group, int64_t rows) const {
  return ceil_div(rows, geometry_.records_per_chunk(group, chunk_bytes_));
}

int64_t DevicePool::chunks_of_all_rows(int64_t rows) const {
  int64_t total = 0;
  for (int g = 0; g < num_groups(); ++g) total += chunks_of_rows(g, rows);
  return total;
}

int64_t DevicePool::chunks_for(const Need& need) const {
  return ceil_div(need.items, geometry_.index_items_per_chunk(chunk_bytes_)) +
         ceil_div(need.pages, pages_.items_per_segment()) +
         chunks_of_all_rows(required_rows(need.own_rows, need.items));
}

int64_t DevicePool::bytes_for(const Need& need) const {
  const int64_t rows = required_rows(need.own_rows, need.items);
  int64_t bytes = need.items * geometry_.index_item_bytes + need.pages * geometry_.draft_page_bytes;
  for (const GroupGeometry& group : geometry_.groups) bytes += rows * group.record_bytes;
  return bytes;
}

bool DevicePool::fits(const Need& more) const {
  const int64_t segments =
      num_segments() + items_.missing_segments(more.items) + pages_.missing_segments(more.pages);
  const int64_t rows = required_rows(own_rows_ + more.own_rows, items_.num_used() + more.items);
  return segments + chunks_of_all_rows(rows) <= num_chunks_;
}

bool DevicePool::could_fit(const Need& more, const Need& freed) const {
  const int64_t items = more.items - freed.items;
  const int64_t rows =
      required_rows(own_rows_ + more.own_rows - freed.own_rows, items_.num_used() + items);
  const int64_t segments =
      items_.least_segments(items) + pages_.least_segments(more.pages - freed.pages);
  return segments + chunks_of_all_rows(rows) <= num_chunks_;
}

void DevicePool::add(const Need& more) {
  const int64_t new_index = items_.missing_segments(more.items);
  const int64_t new_draft = pages_.missing_segments(more.pages);
  own_rows_ += more.own_rows;
  shrink_to(required_rows(own_rows_, items_.num_used() + more.items), new_index + new_draft);
  for (int64_t i = 0; i < new_index; ++i) grow_index();
  for (int64_t i = 0; i < new_draft; ++i) grow_draft();
}

void DevicePool::remove_rows(int64_t own_rows) {
  own_rows_ -= own_rows;
  DHS_CHECK(own_rows_ >= 0, "more rows given up than required");
}

int64_t DevicePool::own_rows_of(std::span<const int64_t> device_tokens) const {
  int64_t rows = 0;
  for (int64_t tokens : device_tokens) rows += need_of(tokens).own_rows;
  return rows;
}

bool DevicePool::promise(ResidencyConfig residency, int64_t decode_rows,
                         std::span<const int64_t> device_tokens) {
  const ResidencyConfig before = std::exchange(residency_, std::move(residency));
  const int64_t rows_before = std::exchange(decode_rows_, decode_rows);
  const int64_t own_rows = own_rows_of(device_tokens);
  const int64_t chunks =
      num_segments() + chunks_of_all_rows(required_rows(own_rows, items_.num_used()));
  if (chunks > num_chunks_) {
    residency_ = before;
    decode_rows_ = rows_before;
    return false;
  }
  own_rows_ = own_rows;
  return true;
}

void DevicePool::release_item(HostBlockId block) {
  const auto emptied = items_.release(block);
  if (!emptied.has_value()) return;
  ++index_moves_.released;
  moves_.push_back({ChunkMove::Kind::kReleaseIndex, 0, emptied->segment, emptied->chunk});
  free_.push_back(emptied->chunk);
}

void DevicePool::release_page(HostBlockId block) {
  const auto emptied = pages_.release(block);
  if (!emptied.has_value()) return;
  ++draft_moves_.released;
  moves_.push_back({ChunkMove::Kind::kReleaseDraft, 0, emptied->segment, emptied->chunk});
  free_.push_back(emptied->chunk);
}

int64_t DevicePool::num_optional() const {
  return num_chunks_ - num_segments() - chunks_of_all_rows(required_rows());
}

// ---- Chunks -------------------------------------------------------------------------------------

ChunkId DevicePool::take_free() {
  DHS_CHECK(!free_.empty(), "no chunk is free");
  const ChunkId chunk = free_.back();
  free_.pop_back();
  return chunk;
}

void DevicePool::grow_rows(int group) {
  const ChunkId chunk = take_free();
  const auto segment = static_cast<int32_t>(rows_[group].size());
  rows_[group].push_back(chunk);
  ++row_moves_[group].grown;
  moves_.push_back({ChunkMove::Kind::kGrowRows, group, segment, chunk});
}

void DevicePool::release_rows(int group) {
  DHS_CHECK(!rows_[group].empty(), "group ", group, " has no chunk to release");
  const ChunkId chunk = rows_[group].back();
  rows_[group].pop_back();
  const auto segment = static_cast<int32_t>(rows_[group].size());
  ++row_moves_[group].released;
  moves_.push_back({ChunkMove::Kind::kReleaseRows, group, segment, chunk});
  free_.push_back(chunk);
}

void DevicePool::grow_index() {
  const ChunkId chunk = take_free();
  const int32_t segment = items_.add_segment(chunk);
  ++index_moves_.grown;
  moves_.push_back({ChunkMove::Kind::kGrowIndex, 0, segment, chunk});
}

void DevicePool::grow_draft() {
  const ChunkId chunk = take_free();
  const int32_t segment = pages_.add_segment(chunk);
  ++draft_moves_.grown;
  moves_.push_back({ChunkMove::Kind::kGrowDraft, 0, segment, chunk});
}

double DevicePool::fill(int group, int64_t chunks) const {
  const int64_t rows = chunks * geometry_.records_per_chunk(group, chunk_bytes_);
  return static_cast<double>(rows) / weights_[group];
}

// Of the groups that hold a chunk more than `rows` required ones, the one that without it holds
// most for its weight; -1 when there is none.
int DevicePool::fullest_group(int64_t rows) const {
  int fullest = -1;
  for (int g = 0; g < num_groups(); ++g) {
    if (num_row_chunks(g) <= chunks_of_rows(g, rows)) continue;
    const double left = fill(g, num_row_chunks(g) - 1);
    if (fullest < 0 || left > fill(fullest, num_row_chunks(fullest) - 1)) fullest = g;
  }
  return fullest;
}

// Of the groups that can use a chunk more, the one that holds least for its weight; -1 when there
// is none.
int DevicePool::emptiest_group() const {
  int emptiest = -1;
  for (int g = 0; g < num_groups(); ++g) {
    if (num_row_chunks(g) >= target_chunks(g)) continue;
    if (emptiest < 0 || fill(g, num_row_chunks(g)) < fill(emptiest, num_row_chunks(emptiest))) {
      emptiest = g;
    }
  }
  return emptiest;
}

// Releases optional residency until `num_free_wanted` chunks are free beside what `rows` require.
void DevicePool::shrink_to(int64_t rows, int64_t num_free_wanted) {
  auto num_missing = [&] {
    int64_t missing = num_free_wanted - num_free();
    for (int g = 0; g < num_groups(); ++g) {
      missing += std::max<int64_t>(0, chunks_of_rows(g, rows) - num_row_chunks(g));
    }
    return missing;
  };
  while (num_missing() > 0) {
    const int group = fullest_group(rows);
    DHS_CHECK(group >= 0, "required memory exceeds the chunk pool");
    release_rows(group);
    is_pressed_ = true;
  }
}

// What a group may hold beyond its required chunks: in adaptive mode every row that requests cover,
// otherwise nothing.
int64_t DevicePool::target_chunks(int group) const {
  const bool is_adaptive = residency_.mode == ResidencyMode::kAdaptive;
  const int64_t covered_rows = items_.num_used() * kHostBlockTokens;
  const int64_t rows = is_adaptive ? std::max(required_rows(), covered_rows) : required_rows();
  return chunks_of_rows(group, rows);
}

// Gives optional residency up until so many chunks are free, or none is left.
void DevicePool::keep_free(int64_t num_chunks) {
  while (num_free() < num_chunks) {
    const int group = fullest_group(required_rows());
    if (group < 0) return;
    release_rows(group);
  }
}

void DevicePool::grow_optional(const Policy& policy) {
  int64_t below_floor = chunks_of_all_rows(policy.floor_rows);
  for (int g = 0; g < num_groups(); ++g) below_floor -= num_row_chunks(g);
  const int64_t most = std::min(std::max(policy.growth_chunks, below_floor),
                                num_free() - 2 * policy.headroom_chunks);
  for (int64_t i = 0; i < most; ++i) {
    const int group = emptiest_group();
    if (group < 0) return;
    grow_rows(group);
  }
}

// Moves chunks between groups whose weights have changed: few a step, and only where it matters.
void DevicePool::even_out() {
  const int64_t most = std::max<int64_t>(1, num_chunks_ / kStepsToEvenOut);
  for (int64_t i = 0; i < most; ++i) {
    const int from = fullest_group(required_rows());
    const int to = emptiest_group();
    if (from < 0 || to < 0 || from == to) return;
    const double left = fill(from, num_row_chunks(from) - 1);
    if (left < kWorthEvening * fill(to, num_row_chunks(to) + 1)) return;
    release_rows(from);
    grow_rows(to);
  }
}

std::vector<ChunkMove> DevicePool::rebalance(const Policy& policy) {
  for (int g = 0; g < num_groups(); ++g) {
    while (num_row_chunks(g) > target_chunks(g)) release_rows(g);
  }
  shrink_to(required_rows(), 0);
  for (int g = 0; g < num_groups(); ++g) {
    while (num_row_chunks(g) < chunks_of_rows(g, required_rows())) grow_rows(g);
  }
  if (residency_.mode == ResidencyMode::kAdaptive) {
    weights_.assign(policy.weights.begin(), policy.weights.end());
    if (num_free() < policy.headroom_chunks) keep_free(2 * policy.headroom_chunks);
    grow_optional(policy);
    if (policy.growth_chunks > 0) even_out();
  }
  return std::exchange(moves_, {});
}

std::string DevicePool::check_invariants(std::span<const int64_t> device_tokens) const {
  if (own_rows_of(device_tokens) != own_rows_) {
    return absl::StrCat(own_rows_, " rows are required, requests are promised ",
                        own_rows_of(device_tokens));
  }
  std::multiset<int32_t> owned;
  for (ChunkId chunk : free_) owned.insert(chunk.value);
  for (const BlockItems* items : {&items_, &pages_}) {
    for (const auto& chunk : items->chunks()) {
      if (chunk.has_value()) owned.insert(chunk->value);
    }
  }
  for (const auto& chunks : rows_) {
    for (ChunkId chunk : chunks) owned.insert(chunk.value);
  }
  if (static_cast<int32_t>(owned.size()) != num_chunks_ ||
      std::set<int32_t>(owned.begin(), owned.end()).size() != owned.size()) {
    return absl::StrCat("chunks: ", owned.size(), " owned, ", num_chunks_, " exist");
  }
  if (num_optional() < 0) {
    return absl::StrCat("over-committed by ", -num_optional(), " chunks of ", num_chunks_);
  }
  const std::string wrong = items_.check_invariants();
  return wrong.empty() ? pages_.check_invariants() : absl::StrCat("index ", wrong);
}

}  // namespace dhs
