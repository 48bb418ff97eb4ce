// Items of host blocks on the device, all of one size: the index items of the blocks that running
// requests cover, or the draft pages of those that their next drafts read. Requests that share a
// block share its item. Items live in chunks of their own, the segments.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

class BlockItems {
 public:
  BlockItems(int32_t max_num_segments, int32_t items_per_segment);

  int32_t items_per_segment() const { return items_per_segment_; }
  int64_t num_segments() const { return num_segments_; }
  int64_t num_used() const { return static_cast<int64_t>(item_of_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_items_.size()); }
  bool contains(HostBlockId block) const { return item_of_.contains(block.value); }
  // Segments to add before `num_items` can be allocated.
  int64_t missing_segments(int64_t num_items) const;
  // Segments that would do for all items in use and `num_items` more, if they lay close together.
  int64_t least_segments(int64_t num_items) const;

  // The chunk becomes a segment; returns which.
  int32_t add_segment(ChunkId chunk);

  struct Held {
    int32_t item;
    bool is_new;  // its bytes are not there yet
  };
  // One more holder of the block's item, which is allocated for the first: the lowest free one, so
  // that high segments empty themselves. Precondition: there is one, or the block has an item.
  Held hold(HostBlockId block);

  struct EmptySegment {
    int32_t segment;
    ChunkId chunk;
  };
  // One holder less. The last one frees the item, and gives up its segment if that is empty now.
  std::optional<EmptySegment> release(HostBlockId block);

  std::string check_invariants() const;
  const std::vector<std::optional<ChunkId>>& chunks() const { return chunks_; }

 private:
  struct Item {
    int32_t item = 0;
    int32_t num_holders = 0;
  };

  const int32_t items_per_segment_;
  int64_t num_segments_ = 0;
  std::vector<std::optional<ChunkId>> chunks_;  // by segment
  std::vector<int32_t> used_;                   // items in use, by segment
  std::set<int32_t> free_items_;
  std::unordered_map<int32_t, Item> item_of_;  // by host block
};

}  // namespace dhs
