#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace dhs {
namespace {

uint64_t child_key(uint32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::span<const AddedToken> tokens)
    : tokens_(tokens.begin(), tokens.end()),
      nodes_(1),
      word_(SplitRegex::compile_native(R"(\A[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])")) {
  for (size_t i = 0; i < tokens_.size(); ++i) insert(i);
}

void AddedTokenFinder::insert(size_t token_idx) {
  uint32_t node = 0;
  for (const char byte : tokens_[token_idx].content) {
    uint32_t& child = node == 0 ? root_children_[static_cast<uint8_t>(byte)]
                                : inner_children_[child_key(node, byte)];
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node = child;
  }
  if (!nodes_[node].token_idx) nodes_[node].token_idx = token_idx;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text,
                                                              size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (root_children_[static_cast<uint8_t>(text[begin])] == 0) continue;
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::match_at(std::string_view text,
                                                                  size_t begin) const {
  std::optional<Match> longest;
  uint32_t node = root_children_[static_cast<uint8_t>(text[begin])];
  size_t end = begin + 1;
  while (true) {
    if (nodes_[node].token_idx) longest = {{begin, end}, *nodes_[node].token_idx};
    if (end == text.size()) return longest;
    const auto child = inner_children_.find(child_key(node, text[end]));
    if (child == inner_children_.end()) return longest;
    node = child->second;
    ++end;
  }
}

bool AddedTokenFinder::is_word(std::string_view text, size_t offset, RegexScratch& scratch) const {
  const std::string_view character = text.substr(offset, decode_utf8(text, offset).num_bytes);
  const auto match = word_.find(character, 0, scratch);
  return match.ok() && match->has_value();
}

bool AddedTokenFinder::Scan::is_usable(const AddedToken& token, const ByteRange& match,
                                       RegexScratch& scratch) const {
  if (token.special && !parse_special_) return false;
  if (!token.single_word) return true;
  const bool touches_left =
      match.begin > 0 && finder_.is_word(text_, previous_utf8(text_, match.begin), scratch);
  const bool touches_right = match.end < text_.size() && finder_.is_word(text_, match.end, scratch);
  return !touches_left && !touches_right;
}

ByteRange AddedTokenFinder::Scan::with_stripped(const AddedToken& token, ByteRange match) const {
  while (token.lstrip && match.begin > covered_) {
    const size_t previous = previous_utf8(text_, match.begin);
    if (!is_white_space(decode_utf8(text_, previous).code_point)) break;
    match.begin = previous;
  }
  while (token.rstrip && match.end < text_.size()) {
    const Utf8Char next = decode_utf8(text_, match.end);
    if (!is_white_space(next.code_point)) break;
    match.end += next.num_bytes;
  }
  return match;
}

void AddedTokenFinder::Scan::find_next(RegexScratch& scratch) {
  while (const std::optional<Match> found = finder_.find(text_, search_from_)) {
    search_from_ = found->range.end;
    const AddedToken& token = finder_.tokens_[found->token_idx];
    if (!is_usable(token, found->range, scratch)) continue;
    match_ = with_stripped(token, found->range);
    match_token_ = token.id;
    return;
  }
  search_from_ = text_.size();
}

std::optional<AddedTokenFinder::Segment> AddedTokenFinder::Scan::next(RegexScratch& scratch) {
  if (covered_ == text_.size()) return std::nullopt;
  if (!match_) find_next(scratch);
  const size_t begin = covered_;
  if (!match_ || begin < match_->begin) {
    covered_ = match_ ? match_->begin : text_.size();
    return Segment{text_.substr(begin, covered_ - begin), std::nullopt};
  }
  covered_ = match_->end;
  match_.reset();
  return Segment{text_.substr(begin, covered_ - begin), match_token_};
}

}  // namespace dhs
