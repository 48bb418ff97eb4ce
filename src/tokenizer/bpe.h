// Byte-pair merging of one piece: start from single bytes, always merge the adjacent pair with the
// lowest rank (leftmost first), until no pair of neighbours can be merged.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"
#include "tokenizer/tokenizer_spec.h"

namespace dhs {

class Bpe {
 public:
  // Buffers of encode(), to be reused; one per thread.
  class Scratch {
   private:
    friend class Bpe;
    struct Symbol {
      TokenId token;
      uint32_t previous;
      uint32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> candidates;
  };

  // INVALID_ARGUMENT: an id out of range or used twice, a merge of unknown tokens, or a byte that
  // occurs in UTF-8 but is no token.
  static absl::StatusOr<Bpe> create(const BpeSpec& spec);

  // Appends the tokens of `piece`: valid UTF-8 of less than 2^32 bytes.
  // O(n log n); for short pieces a scan without any allocation.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& tokens) const;

  std::optional<TokenId> token_to_id(std::string_view spelling) const;

 private:
  // The merge with this rank: its place in rules_.
  struct Rule {
    TokenId left;
    TokenId right;
    TokenId merged;
  };

  absl::Status add_vocab(const BpeSpec& spec);
  absl::Status add_merges(const BpeSpec& spec);
  absl::Status add_bytes();
  uint32_t rank_of(TokenId left, TokenId right) const;
  void encode_short(std::string_view piece, std::vector<TokenId>& tokens) const;
  void encode_long(std::string_view piece, Scratch& scratch, std::vector<TokenId>& tokens) const;
  void push_candidate(uint32_t left_idx, Scratch& scratch) const;
  void merge_candidates(Scratch& scratch) const;

  absl::flat_hash_map<std::string, TokenId> ids_;
  absl::flat_hash_map<uint64_t, uint32_t> ranks_;  // (left, right) -> rank
  std::vector<Rule> rules_;
  std::array<TokenId, 256> byte_tokens_{};
  bool ignore_merges_ = false;
};

}  // namespace dhs
