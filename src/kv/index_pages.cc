#include "kv/index_pages.h"

#include <algorithm>

namespace dhs {

KvManager::IndexPages::IndexPages(int32_t max_num_segments, int32_t pages_per_segment)
    : pages_per_segment_(pages_per_segment), chunks_(max_num_segments), used_(max_num_segments) {
  DHS_CHECK(pages_per_segment > 0, "a chunk holds no index item");
}

int64_t KvManager::IndexPages::missing_segments(int64_t num_pages) const {
  const int64_t missing_pages = std::max<int64_t>(0, num_pages - num_free_pages());
  return ceil_div(missing_pages, pages_per_segment_);
}

int32_t KvManager::IndexPages::add_segment(ChunkId chunk) {
  const auto vacant = std::find(chunks_.begin(), chunks_.end(), std::nullopt);
  DHS_CHECK(vacant != chunks_.end(), "more index segments than chunks");
  *vacant = chunk;
  const auto segment = static_cast<int32_t>(vacant - chunks_.begin());
  for (int32_t i = 0; i < pages_per_segment_; ++i) {
    free_pages_.insert(segment * pages_per_segment_ + i);
  }
  ++num_segments_;
  return segment;
}

std::vector<int32_t> KvManager::IndexPages::allocate(int64_t num_pages) {
  DHS_CHECK(num_pages <= num_free_pages(), num_pages, " index pages, ", num_free_pages(), " free");
  std::vector<int32_t> pages;
  pages.reserve(num_pages);
  for (int64_t i = 0; i < num_pages; ++i) {
    const int32_t page = *free_pages_.begin();
    free_pages_.erase(free_pages_.begin());
    ++used_[page / pages_per_segment_];
    pages.push_back(page);
  }
  return pages;
}

std::vector<KvManager::IndexPages::EmptySegment> KvManager::IndexPages::free(
    const std::vector<int32_t>& pages) {
  std::vector<EmptySegment> emptied;
  for (int32_t page : pages) {
    const int32_t segment = page / pages_per_segment_;
    DHS_CHECK(used_[segment] > 0 && free_pages_.insert(page).second, "index page freed twice");
    if (--used_[segment] > 0) continue;
    const int32_t first = segment * pages_per_segment_;
    free_pages_.erase(free_pages_.lower_bound(first),
                      free_pages_.lower_bound(first + pages_per_segment_));
    emptied.push_back({segment, *chunks_[segment]});
    chunks_[segment].reset();
    --num_segments_;
  }
  return emptied;
}

std::string KvManager::IndexPages::check_invariants() const {
  int64_t num_used = 0;
  for (int32_t used : used_) num_used += used;
  if (num_used + num_free_pages() != num_segments_ * pages_per_segment_) {
    return absl::StrCat("index pages: ", num_used, " used + ", num_free_pages(), " free in ",
                        num_segments_, " segments of ", pages_per_segment_);
  }
  return {};
}

}  // namespace dhs
