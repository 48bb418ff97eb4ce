#include "kv/host_blocks.h"

#include <algorithm>
#include <utility>

namespace dhs {

HostBlocks::HostBlocks(int32_t num_blocks)
    : index_(num_blocks), num_holders_(num_blocks), place_(num_blocks) {
  for (int32_t i = num_blocks - 1; i >= 0; --i) free_.emplace_back(i);
}

HostBlockId HostBlocks::evict() {
  DHS_CHECK(!cached_.empty(), "no host block is available");
  const HostBlockId block = cached_.front();
  cached_.pop_front();
  index_.remove(block);
  retired_.push_back(block);
  return block;
}

HostBlockId HostBlocks::take() {
  HostBlockId block;
  if (free_.empty()) {
    block = evict();
  } else {
    block = free_.back();
    free_.pop_back();
  }
  DHS_CHECK(num_holders_[block.value] == 0, "host block ", block.value, " handed out twice");
  num_holders_[block.value] = 1;
  return block;
}

void HostBlocks::hold(HostBlockId block) {
  if (num_holders_[block.value]++ > 0) return;
  DHS_CHECK(index_.contains(block), "host block ", block.value, " is neither held nor cached");
  cached_.erase(place_[block.value]);
}

void HostBlocks::release(HostBlockId block) {
  DHS_CHECK(num_holders_[block.value] > 0, "host block ", block.value, " released twice");
  if (--num_holders_[block.value] > 0) return;
  if (index_.contains(block)) {
    place_[block.value] = cached_.insert(cached_.end(), block);
  } else {
    retired_.push_back(block);
    free_.push_back(block);
  }
}

std::vector<HostBlockId> HostBlocks::take_retired() { return std::exchange(retired_, {}); }

std::string HostBlocks::check_invariants() const {
  const auto num_held = num_blocks() - std::count(num_holders_.begin(), num_holders_.end(), 0);
  if (num_held != this->num_held()) {
    return absl::StrCat("host blocks: ", num_held, " held + ", num_cached(), " cached + ",
                        num_free(), " free of ", num_blocks());
  }
  for (HostBlockId block : cached_) {
    if (is_held(block) || !index_.contains(block)) {
      return absl::StrCat("host block ", block.value, " is cached, and held or not published");
    }
  }
  for (HostBlockId block : free_) {
    if (is_held(block) || index_.contains(block)) {
      return absl::StrCat("host block ", block.value, " is free, and held or published");
    }
  }
  return index_.check_invariants();
}

}  // namespace dhs
