#include "kv/prefix_index.h"

#include <algorithm>

namespace dhs {

// A multiplication and a fold per token (the finaliser of splitmix64). Whoever makes tokens collide
// on purpose slows the search down; what is found is compared.
size_t PrefixIndex::Hash::operator()(const Key& key) const {
  auto state = static_cast<uint64_t>(key.parent.value);
  for (TokenId token : key.tokens) {
    state = (state ^ static_cast<uint64_t>(token)) * 0xbf58476d1ce4e5b9ull;
    state ^= state >> 27;
  }
  return static_cast<size_t>(state);
}

bool PrefixIndex::Equal::operator()(const Key& a, const Key& b) const {
  return a.parent == b.parent &&
         std::equal(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
}

PrefixIndex::PrefixIndex(int32_t num_blocks)
    : entries_(num_blocks), children_(0, Hash{this}, Equal{this}) {}

// ---- Roots --------------------------------------------------------------------------------------

PrefixNode PrefixIndex::hold_root(std::string_view salt) {
  const auto known = root_of_salt_.find(std::string(salt));
  if (known != root_of_salt_.end()) {
    ++roots_[known->second].num_holders;
    return {known->second};
  }
  // Numbers of roots come round after two billion salts; one that is in use is stepped over.
  int32_t value = 0;
  do {
    num_roots_ever_ = num_roots_ever_ == INT32_MAX ? 1 : num_roots_ever_ + 1;
    value = -num_roots_ever_;
  } while (roots_.contains(value));
  roots_[value] = {std::string(salt), 1};
  root_of_salt_[std::string(salt)] = value;
  return {value};
}

std::optional<PrefixNode> PrefixIndex::find_root(std::string_view salt) const {
  const auto known = root_of_salt_.find(std::string(salt));
  if (known == root_of_salt_.end()) return std::nullopt;
  return PrefixNode{known->second};
}

void PrefixIndex::release_root(PrefixNode root) {
  const auto found = roots_.find(root.value);
  DHS_CHECK(found != roots_.end(), "root ", root.value, " is not held");
  if (--found->second.num_holders > 0) return;
  root_of_salt_.erase(found->second.salt);
  roots_.erase(found);
}

// ---- Blocks -------------------------------------------------------------------------------------

std::optional<HostBlockId> PrefixIndex::find(PrefixNode parent,
                                             std::span<const TokenId> tokens) const {
  const auto found = children_.find(Key{parent, tokens});
  if (found == children_.end()) return std::nullopt;
  return *found;
}

void PrefixIndex::add(PrefixNode parent, HostBlockId block, std::span<const TokenId> tokens) {
  DHS_CHECK(tokens.size() == size_t{kHostBlockTokens}, "a block of ", tokens.size(), " tokens");
  Entry& entry = entries_[block.value];
  DHS_CHECK(!entry.is_used, "host block ", block.value, " is published twice");
  if (parent.value >= 0) {
    Entry& before = entries_[parent.value];
    DHS_CHECK(before.is_used, "host block ", block.value, " continues block ", parent.value,
              ", which is not published");
    ++before.num_children;
  } else {
    const auto root = roots_.find(parent.value);
    DHS_CHECK(root != roots_.end(), "root ", parent.value, " is not held");
    ++root->second.num_holders;
  }
  entry.is_used = true;
  entry.parent = parent;
  entry.tokens.assign(tokens.begin(), tokens.end());
  DHS_CHECK(children_.insert(block).second, "two blocks of one content");
}

void PrefixIndex::remove(HostBlockId block) {
  Entry& entry = entries_[block.value];
  DHS_CHECK(entry.is_used && entry.num_children == 0, "host block ", block.value,
            " leaves the index with ", entry.num_children, " blocks after it");
  children_.erase(block);
  entry.is_used = false;
  if (entry.parent.value >= 0) {
    --entries_[entry.parent.value].num_children;
  } else {
    release_root(entry.parent);
  }
}

std::string PrefixIndex::check_invariants() const {
  int64_t num_used = 0;
  std::vector<int32_t> num_children(entries_.size());
  for (const Entry& entry : entries_) {
    if (!entry.is_used) continue;
    ++num_used;
    if (entry.parent.value < 0) {
      if (!roots_.contains(entry.parent.value)) return "a published block has lost its root";
      continue;
    }
    if (!entries_[entry.parent.value].is_used) return "a published block has lost its parent";
    ++num_children[entry.parent.value];
  }
  if (num_used != size()) return absl::StrCat(num_used, " published blocks, ", size(), " found");
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].is_used && entries_[i].num_children != num_children[i]) {
      return absl::StrCat("host block ", i, " counts ", entries_[i].num_children, " children of ",
                          num_children[i]);
    }
  }
  return {};
}

}  // namespace dhs
