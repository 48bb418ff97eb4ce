// Prompt lookup: drafts without a model, what followed the sequence's end where it stood before.
//
// The longest end of the sequence, of ngram_max down to ngram_min tokens, that occurs earlier in it
// counts; of several occurrences the latest. Drafts are the tokens that followed; where these reach
// the end of the sequence they go on with the drafts themselves, so that a repetition is continued.
// A table holds, for every run of so many tokens, where its latest occurrence ended: by its hash,
// and compared token by token, so that a collision costs drafts and never makes wrong ones.
// Costs O(ngram_max) and ngram_max - ngram_min + 1 entries a token.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <span>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

class PromptLookup {
 public:
  // 1 <= ngram_min <= ngram_max.
  PromptLookup(int ngram_min, int ngram_max);

  // `tokens` is what it was at the call before and tokens that follow. At most `count` drafts.
  std::vector<TokenId> propose(std::span<const TokenId> tokens, int64_t count);
  // Takes tokens over ahead of propose(), which then takes less time.
  void extend(std::span<const TokenId> tokens);

 private:
  // By length - 1, up to ngram_max: hashes of the runs that end before `end`.
  void hash_runs(std::span<const TokenId> tokens, int64_t end);
  int64_t find_end(std::span<const TokenId> tokens);

  const int ngram_min_;
  const int ngram_max_;
  absl::flat_hash_map<uint64_t, int64_t> ends_;  // of a run of tokens: the position after it
  int64_t num_taken_ = 0;                        // runs that end at or before it are in the table
  std::vector<uint64_t> hashes_;
};

}  // namespace dhs
