// The pool of host blocks: who holds each, and which content outlives its holders.
//
// A block is free, held (by one or more requests), or cached: published in the prefix index and
// held by nobody. Cached blocks are as good as free; the one that was given up first goes first.
// A chain is given up from its end, so a block never goes before those that continue it.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "dhisparse/base.h"
#include "kv/prefix_index.h"

namespace dhs {

class HostBlocks {
 public:
  explicit HostBlocks(int32_t num_blocks);

  int64_t num_available() const { return num_free() + num_cached(); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_cached() const { return static_cast<int64_t>(cached_.size()); }
  int64_t num_held() const { return num_blocks() - num_available(); }
  bool is_held(HostBlockId block) const { return num_holders_[block.value] > 0; }

  // A block without content, held by the caller. Precondition: num_available() > 0.
  HostBlockId take();
  // One more holder of a block that is held or cached.
  void hold(HostBlockId block);
  // One less. The last one leaves a published block cached, and any other free.
  void release(HostBlockId block);

  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }

  // Blocks whose content is gone since the last call: whoever knows their rows must forget them
  // before they are written again.
  std::vector<HostBlockId> take_retired();

  std::string check_invariants() const;

 private:
  int64_t num_blocks() const { return static_cast<int64_t>(num_holders_.size()); }
  HostBlockId evict();

  PrefixIndex index_;
  std::vector<int32_t> num_holders_;                     // by block
  std::vector<std::list<HostBlockId>::iterator> place_;  // in cached_, of cached blocks
  std::list<HostBlockId> cached_;                        // given up first to last
  std::vector<HostBlockId> free_;                        // a stack
  std::vector<HostBlockId> retired_;
};

}  // namespace dhs
