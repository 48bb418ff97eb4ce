#include "kv/index_items.h"

#include <algorithm>

namespace dhs {

KvManager::IndexItems::IndexItems(int32_t max_num_segments, int32_t items_per_segment)
    : items_per_segment_(items_per_segment), chunks_(max_num_segments), used_(max_num_segments) {
  DHS_CHECK(items_per_segment > 0, "a chunk holds no index item");
}

int64_t KvManager::IndexItems::missing_segments(int64_t num_items) const {
  const int64_t missing_items = std::max<int64_t>(0, num_items - num_free());
  return ceil_div(missing_items, items_per_segment_);
}

int32_t KvManager::IndexItems::add_segment(ChunkId chunk) {
  const auto vacant = std::find(chunks_.begin(), chunks_.end(), std::nullopt);
  DHS_CHECK(vacant != chunks_.end(), "more index segments than chunks");
  *vacant = chunk;
  const auto segment = static_cast<int32_t>(vacant - chunks_.begin());
  for (int32_t i = 0; i < items_per_segment_; ++i) {
    free_items_.insert(segment * items_per_segment_ + i);
  }
  ++num_segments_;
  return segment;
}

std::vector<int32_t> KvManager::IndexItems::allocate(int64_t num_items) {
  DHS_CHECK(num_items <= num_free(), num_items, " index items, ", num_free(), " free");
  std::vector<int32_t> items;
  items.reserve(num_items);
  for (int64_t i = 0; i < num_items; ++i) {
    const int32_t item = *free_items_.begin();
    free_items_.erase(free_items_.begin());
    ++used_[item / items_per_segment_];
    items.push_back(item);
  }
  return items;
}

std::vector<KvManager::IndexItems::EmptySegment> KvManager::IndexItems::free(
    const std::vector<int32_t>& items) {
  std::vector<EmptySegment> emptied;
  for (int32_t item : items) {
    const int32_t segment = item / items_per_segment_;
    DHS_CHECK(used_[segment] > 0 && free_items_.insert(item).second, "index item freed twice");
    if (--used_[segment] > 0) continue;
    const int32_t first = segment * items_per_segment_;
    free_items_.erase(free_items_.lower_bound(first),
                      free_items_.lower_bound(first + items_per_segment_));
    emptied.push_back({segment, *chunks_[segment]});
    chunks_[segment].reset();
    --num_segments_;
  }
  return emptied;
}

std::string KvManager::IndexItems::check_invariants() const {
  int64_t num_used = 0;
  for (int32_t used : used_) num_used += used;
  if (num_used + num_free() != num_segments_ * items_per_segment_) {
    return absl::StrCat("index items: ", num_used, " used + ", num_free(), " free in ",
                        num_segments_, " segments of ", items_per_segment_);
  }
  return {};
}

}  // namespace dhs
