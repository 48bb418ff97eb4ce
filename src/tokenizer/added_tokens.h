// Finds added tokens (role markers, control tokens) that are spelled out in a text.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/split_regex.h"
#include "tokenizer/tokenizer_spec.h"

namespace dhs {

// Immutable. The leftmost match wins, of those that start together the longest.
class AddedTokenFinder {
 public:
  // Of two tokens with the same content the first counts. No content is empty or longer than
  // kMaxAddedTokenBytes. If a token strips to its right, no content starts with white space:
  // matches could then overlap what was stripped.
  explicit AddedTokenFinder(std::span<const AddedToken> tokens);

  struct Segment {
    std::string_view text;
    std::optional<TokenId> token;  // absent: text between added tokens, not empty
  };

  // The segments of one text from left to right, covering all of it.
  class Scan {
   public:
    // With `parse_special` false the spelling of a special token is plain text.
    Scan(const AddedTokenFinder& finder, std::string_view text, bool parse_special)
        : finder_(finder), text_(text), parse_special_(parse_special) {}
    std::optional<Segment> next(RegexScratch& scratch);

   private:
    bool is_usable(const AddedToken& token, const ByteRange& match, RegexScratch& scratch) const;
    ByteRange with_stripped(const AddedToken& token, ByteRange match) const;
    void find_next(RegexScratch& scratch);

    const AddedTokenFinder& finder_;
    const std::string_view text_;
    const bool parse_special_;
    size_t search_from_ = 0;
    size_t covered_ = 0;
    std::optional<ByteRange> match_;  // found, not given out yet
    TokenId match_token_ = 0;
  };

 private:
  struct Node {
    std::optional<size_t> token_idx;
  };
  struct Match {
    ByteRange range;
    size_t token_idx = 0;
  };

  void insert(size_t token_idx);
  std::optional<Match> find(std::string_view text, size_t from) const;
  std::optional<Match> match_at(std::string_view text, size_t begin) const;
  bool is_word(std::string_view text, size_t offset, RegexScratch& scratch) const;

  std::vector<AddedToken> tokens_;
  // A trie over bytes; node 0 is the root. Few texts get past the root, so only it has an array.
  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_children_{};               // 0: none
  absl::flat_hash_map<uint64_t, uint32_t> inner_children_;  // (node, byte) -> node
  SplitRegex word_;
};

}  // namespace dhs
