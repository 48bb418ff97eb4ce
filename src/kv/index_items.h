// Index items: one per host block of every running request, in chunks of their own.
#pragma once

#include <set>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/kv.h"

namespace dhs {

class KvManager::IndexItems {
 public:
  IndexItems(int32_t max_num_segments, int32_t items_per_segment);

  int64_t num_segments() const { return num_segments_; }
  int64_t num_used() const { return num_segments_ * items_per_segment_ - num_free(); }
  int64_t num_free() const { return static_cast<int64_t>(free_items_.size()); }
  // Segments to add before `num_items` can be allocated.
  int64_t missing_segments(int64_t num_items) const;

  // The chunk becomes a segment; returns which.
  int32_t add_segment(ChunkId chunk);
  // Lowest items first, so that high segments empty themselves. Precondition: enough free items.
  std::vector<int32_t> allocate(int64_t num_items);

  struct EmptySegment {
    int32_t segment;
    ChunkId chunk;
  };
  // Frees the items and gives up the segments that are empty now.
  std::vector<EmptySegment> free(const std::vector<int32_t>& items);

  std::string check_invariants() const;
  const std::vector<std::optional<ChunkId>>& chunks() const { return chunks_; }

 private:
  const int32_t items_per_segment_;
  int64_t num_segments_ = 0;
  std::vector<std::optional<ChunkId>> chunks_;  // by segment
  std::vector<int32_t> used_;                   // items in use, by segment
  std::set<int32_t> free_items_;
};

}  // namespace dhs
