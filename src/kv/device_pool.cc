#include "kv/device_pool.h"

#include <algorithm>
#include <set>
#include <utility>

namespace dhs {

DevicePool::DevicePool(const KvGeometry& geometry, const KvCapacity& capacity,
                       const ResidencyConfig& residency)
    : geometry_(geometry),
      num_chunks_(capacity.num_chunks),
      chunk_bytes_(capacity.chunk_bytes),
      residency_(residency),
      items_(capacity.num_chunks,
             static_cast<int32_t>(geometry.index_items_per_chunk(capacity.chunk_bytes))),
      rows_(geometry.groups.size()) {
  for (int32_t i = num_chunks_ - 1; i >= 0; --i) free_.emplace_back(i);
}

// ---- Requirements -------------------------------------------------------------------------------

DevicePool::Need DevicePool::need_of(int64_t num_tokens) const {
  Need need{.items = ceil_div(num_tokens, kHostBlockTokens)};
  const int64_t selected = std::min(geometry_.decode_rows, num_tokens);
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
         chunks_of_all_rows(required_rows(need.own_rows, need.items));
}

bool DevicePool::fits(const Need& more) const {
  const int64_t segments = items_.num_segments() + items_.missing_segments(more.items);
  const int64_t rows = required_rows(own_rows_ + more.own_rows, items_.num_used() + more.items);
  return segments + chunks_of_all_rows(rows) <= num_chunks_;
}

bool DevicePool::could_fit(const Need& more, const Need& freed) const {
  const int64_t items = more.items - freed.items;
  const int64_t rows =
      required_rows(own_rows_ + more.own_rows - freed.own_rows, items_.num_used() + items);
  return items_.least_segments(items) + chunks_of_all_rows(rows) <= num_chunks_;
}

void DevicePool::add(const Need& more) {
  const int64_t new_segments = items_.missing_segments(more.items);
  own_rows_ += more.own_rows;
  shrink_to(required_rows(own_rows_, items_.num_used() + more.items), new_segments);
  for (int64_t i = 0; i < new_segments; ++i) grow_index();
}

void DevicePool::remove_rows(int64_t own_rows) {
  own_rows_ -= own_rows;
  DHS_CHECK(own_rows_ >= 0, "more rows given up than required");
}

void DevicePool::release_item(HostBlockId block) {
  const auto emptied = items_.release(block);
  if (!emptied.has_value()) return;
  moves_.push_back({ChunkMove::Kind::kReleaseIndex, 0, emptied->segment, emptied->chunk});
  free_.push_back(emptied->chunk);
}

int64_t DevicePool::num_optional() const {
  return num_chunks_ - items_.num_segments() - chunks_of_all_rows(required_rows());
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
  moves_.push_back({ChunkMove::Kind::kGrowRows, group, segment, chunk});
}

void DevicePool::release_rows(int group) {
  DHS_CHECK(!rows_[group].empty(), "group ", group, " has no chunk to release");
  const ChunkId chunk = rows_[group].back();
  rows_[group].pop_back();
  const auto segment = static_cast<int32_t>(rows_[group].size());
  moves_.push_back({ChunkMove::Kind::kReleaseRows, group, segment, chunk});
  free_.push_back(chunk);
}

void DevicePool::grow_index() {
  const ChunkId chunk = take_free();
  const int32_t segment = items_.add_segment(chunk);
  moves_.push_back({ChunkMove::Kind::kGrowIndex, 0, segment, chunk});
}

// The group that holds the most rows beyond `rows` required ones; -1 when none holds a spare chunk.
int DevicePool::most_surplus_group(int64_t rows) const {
  int best = -1;
  int64_t best_rows = 0;
  for (int g = 0; g < num_groups(); ++g) {
    const int64_t spare = num_row_chunks(g) - chunks_of_rows(g, rows);
    const int64_t spare_rows = spare * geometry_.records_per_chunk(g, chunk_bytes_);
    if (spare > 0 && spare_rows > best_rows) {
      best = g;
      best_rows = spare_rows;
    }
  }
  return best;
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
    const int group = most_surplus_group(rows);
    DHS_CHECK(group >= 0, "required memory exceeds the chunk pool");
    release_rows(group);
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

// Spare chunks go to the group with the fewest rows that can use one.
void DevicePool::grow_optional() {
  while (!free_.empty()) {
    int poorest = -1;
    int64_t fewest_rows = INT64_MAX;
    for (int g = 0; g < num_groups(); ++g) {
      const int64_t rows = num_row_chunks(g) * geometry_.records_per_chunk(g, chunk_bytes_);
      if (num_row_chunks(g) < target_chunks(g) && rows < fewest_rows) {
        poorest = g;
        fewest_rows = rows;
      }
    }
    if (poorest < 0) return;
    grow_rows(poorest);
  }
}

std::vector<ChunkMove> DevicePool::rebalance() {
  for (int g = 0; g < num_groups(); ++g) {
    while (num_row_chunks(g) > target_chunks(g)) release_rows(g);
  }
  shrink_to(required_rows(), 0);
  for (int g = 0; g < num_groups(); ++g) {
    while (num_row_chunks(g) < chunks_of_rows(g, required_rows())) grow_rows(g);
  }
  if (residency_.mode == ResidencyMode::kAdaptive) grow_optional();
  return std::exchange(moves_, {});
}

std::string DevicePool::check_invariants() const {
  std::multiset<int32_t> owned;
  for (ChunkId chunk : free_) owned.insert(chunk.value);
  for (const auto& chunk : items_.chunks()) {
    if (chunk.has_value()) owned.insert(chunk->value);
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
  return items_.check_invariants();
}

}  // namespace dhs
