#include "kv/block_items.h"

#include <algorithm>
#include <utility>

namespace dhs {

BlockItems::BlockItems(int32_t max_num_segments, int32_t items_per_segment)
    : items_per_segment_(items_per_segment), chunks_(max_num_segments), used_(max_num_segments) {
  DHS_CHECK(items_per_segment > 0, "a chunk holds no item of a host block");
}

int64_t BlockItems::missing_segments(int64_t num_items) const {
  const int64_t missing_items = std::max<int64_t>(0, num_items - num_free());
  return ceil_div(missing_items, items_per_segment_);
}

int64_t BlockItems::least_segments(int64_t num_items) const {
  return ceil_div(num_used() + num_items, items_per_segment_);
}

int32_t BlockItems::add_segment(ChunkId chunk) {
  const auto vacant = std::find(chunks_.begin(), chunks_.end(), std::nullopt);
  DHS_CHECK(vacant != chunks_.end(), "more segments than chunks");
  *vacant = chunk;
  const auto segment = static_cast<int32_t>(vacant - chunks_.begin());
  for (int32_t i = 0; i < items_per_segment_; ++i) {
    free_items_.insert(segment * items_per_segment_ + i);
  }
  ++num_segments_;
  return segment;
}

BlockItems::Held BlockItems::hold(HostBlockId block) {
  Item& item = item_of_[block.value];
  if (item.num_holders++ > 0) return {item.item, false};
  DHS_CHECK(!free_items_.empty(), "no item is free");
  item.item = *free_items_.begin();
  free_items_.erase(free_items_.begin());
  ++used_[item.item / items_per_segment_];
  return {item.item, true};
}

std::optional<BlockItems::EmptySegment> BlockItems::release(HostBlockId block) {
  const auto found = item_of_.find(block.value);
  DHS_CHECK(found != item_of_.end(), "host block ", block.value, " has no item to release");
  if (--found->second.num_holders > 0) return std::nullopt;
  const int32_t item = found->second.item;
  item_of_.erase(found);
  DHS_CHECK(free_items_.insert(item).second, "item ", item, " freed twice");
  const int32_t segment = item / items_per_segment_;
  if (--used_[segment] > 0) return std::nullopt;
  const int32_t first = segment * items_per_segment_;
  free_items_.erase(free_items_.lower_bound(first),
                    free_items_.lower_bound(first + items_per_segment_));
  --num_segments_;
  return EmptySegment{segment, *std::exchange(chunks_[segment], std::nullopt)};
}

std::string BlockItems::check_invariants() const {
  int64_t num_used_items = 0;
  for (int32_t used : used_) num_used_items += used;
  if (num_used_items != num_used() ||
      num_used() + num_free() != num_segments_ * items_per_segment_) {
    return absl::StrCat("items: ", num_used_items, " used of ", num_used(), " blocks + ",
                        num_free(), " free in ", num_segments_, " segments of ",
                        items_per_segment_);
  }
  for (const auto& [block, item] : item_of_) {
    if (free_items_.contains(item.item)) {
      return absl::StrCat("the item of host block ", block, " is free");
    }
  }
  return {};
}

}  // namespace dhs
