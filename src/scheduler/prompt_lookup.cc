#include "scheduler/prompt_lookup.h"

#include <algorithm>

namespace dhs {
namespace {

// An odd multiplier and a fold: each token reaches every bit of the runs that contain it.
uint64_t mixed(uint64_t hash, TokenId token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

}  // namespace

PromptLookup::PromptLookup(int ngram_min, int ngram_max)
    : ngram_min_(ngram_min), ngram_max_(ngram_max) {
  DHS_CHECK(ngram_min >= 1 && ngram_min <= ngram_max, "runs of ", ngram_min, " to ", ngram_max);
}

void PromptLookup::hash_runs(std::span<const TokenId> tokens, int64_t end) {
  hashes_.clear();
  uint64_t hash = 0;
  for (int64_t n = 1; n <= std::min<int64_t>(ngram_max_, end); ++n) {
    hash = mixed(hash, tokens[end - n]);
    hashes_.push_back(hash + static_cast<uint64_t>(n));
  }
}

// The run that ends with the last token is left out: nothing follows it yet.
void PromptLookup::extend(std::span<const TokenId> tokens) {
  while (num_taken_ + 1 < std::ssize(tokens)) {
    hash_runs(tokens, ++num_taken_);
    for (int64_t n = ngram_min_; n <= std::ssize(hashes_); ++n) {
      ends_[hashes_[n - 1]] = num_taken_;
    }
  }
}

// Where the longest run that also ends the sequence ended before; 0: nowhere.
int64_t PromptLookup::find_end(std::span<const TokenId> tokens) {
  hash_runs(tokens, std::ssize(tokens));
  for (int64_t n = std::ssize(hashes_); n >= ngram_min_; --n) {
    const auto found = ends_.find(hashes_[n - 1]);
    if (found == ends_.end() || found->second < n) continue;
    const auto before = tokens.subspan(found->second - n, n);
    if (std::equal(before.begin(), before.end(), tokens.end() - n)) return found->second;
  }
  return 0;
}

std::vector<TokenId> PromptLookup::propose(std::span<const TokenId> tokens, int64_t count) {
  extend(tokens);
  const int64_t end = find_end(tokens);
  if (end == 0) return {};
  std::vector<TokenId> drafts;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = end + i;
    drafts.push_back(from < std::ssize(tokens) ? tokens[from] : drafts[from - std::ssize(tokens)]);
  }
  return drafts;
}

}  // namespace dhs
