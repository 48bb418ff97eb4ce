// Which host blocks hold which tokens: published blocks as a tree, by content.
//
// A child is found by its parent and its 64 tokens, which are compared one by one; a hash only says
// where to look. So a chain of blocks from a root stands for exactly one sequence of tokens. Roots
// are named by a salt: sequences of different salts never share a block.
//
// Accounting only: whether a block's bytes may be read is for the caller to know.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

// The end of a chain: the block that it ends with, or a root.
struct PrefixNode {
  int32_t value = 0;  // a block id; negative: a root
  friend bool operator==(PrefixNode, PrefixNode) = default;
};

class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t num_blocks);
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The root of a salt. It stays while it is held or has children.
  PrefixNode hold_root(std::string_view salt);
  std::optional<PrefixNode> find_root(std::string_view salt) const;
  void release_root(PrefixNode root);

  // The block that continues `parent` with these 64 tokens.
  std::optional<HostBlockId> find(PrefixNode parent, std::span<const TokenId> tokens) const;

  // Precondition: `block` is in no chain, `parent` is there, and find() says nothing.
  void add(PrefixNode parent, HostBlockId block, std::span<const TokenId> tokens);
  // Precondition: no block continues it.
  void remove(HostBlockId block);

  bool contains(HostBlockId block) const { return entries_[block.value].is_used; }
  int64_t size() const { return static_cast<int64_t>(children_.size()); }
  std::string check_invariants() const;

 private:
  struct Entry {
    bool is_used = false;
    PrefixNode parent;
    int32_t num_children = 0;
    std::vector<TokenId> tokens;  // kHostBlockTokens of them
  };
  struct Root {
    std::string salt;
    int64_t num_holders = 0;  // leases and children
  };
  struct Key {
    PrefixNode parent;
    std::span<const TokenId> tokens;
  };
  struct Hash {
    using is_transparent = void;
    const PrefixIndex* index;
    size_t operator()(const Key& key) const;
    size_t operator()(HostBlockId block) const { return (*this)(index->key_of(block)); }
  };
  struct Equal {
    using is_transparent = void;
    const PrefixIndex* index;
    bool operator()(const Key& a, const Key& b) const;
    bool operator()(HostBlockId a, const Key& b) const { return (*this)(index->key_of(a), b); }
    bool operator()(const Key& a, HostBlockId b) const { return (*this)(a, index->key_of(b)); }
    bool operator()(HostBlockId a, HostBlockId b) const { return a == b; }
  };

  Key key_of(HostBlockId block) const {
    return {entries_[block.value].parent, entries_[block.value].tokens};
  }

  std::vector<Entry> entries_;  // by block
  std::unordered_set<HostBlockId, Hash, Equal> children_;
  std::unordered_map<int32_t, Root> roots_;  // by node value
  std::unordered_map<std::string, int32_t> root_of_salt_;
  int32_t num_roots_ever_ = 0;
};

}  // namespace dhs
