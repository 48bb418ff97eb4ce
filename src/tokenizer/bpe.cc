#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "tokenizer/byte_alphabet.h"

namespace dhs {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kNoSymbol = std::numeric_limits<uint32_t>::max();
constexpr TokenId kNoToken = -1;

// Up to here a quadratic scan in registers and L1 beats the heap.
constexpr size_t kMaxShortPiece = 48;

uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Ordered by rank, then from left to right.
uint64_t candidate(uint32_t rank, uint32_t left_idx) {
  return static_cast<uint64_t>(rank) << 32 | left_idx;
}

bool occurs_in_utf8(int byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

absl::StatusOr<Bpe> Bpe::create(const BpeSpec& spec) {
  Bpe bpe;
  bpe.ignore_merges_ = spec.ignore_merges;
  DHS_RETURN_IF_ERROR(bpe.add_vocab(spec));
  DHS_RETURN_IF_ERROR(bpe.add_merges(spec));
  DHS_RETURN_IF_ERROR(bpe.add_bytes());
  return bpe;
}

absl::Status Bpe::add_vocab(const BpeSpec& spec) {
  ids_.reserve(spec.vocab.size());
  absl::flat_hash_map<TokenId, std::string_view> content_of;
  content_of.reserve(spec.vocab.size());
  for (const VocabToken& token : spec.vocab) {
    if (token.id < 0 || token.id >= kMaxVocabSize) {
      return absl::InvalidArgumentError(absl::StrCat("model.vocab: id ", token.id, " of '",
                                                     token.content, "' is not in [0, ",
                                                     kMaxVocabSize, ")"));
    }
    const auto [it, is_new] = content_of.emplace(token.id, token.content);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("model.vocab: '", to_absl(it->second),
                                                     "' and '", token.content,
                                                     "' have the same id ", token.id));
    }
    ids_.emplace(token.content, token.id);
  }
  return absl::OkStatus();
}

absl::Status Bpe::add_merges(const BpeSpec& spec) {
  rules_.reserve(spec.merges.size());
  ranks_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    const std::string merged = left + right;
    for (const std::string* part : {&left, &right, &merged}) {
      if (!ids_.contains(*part)) {
        return absl::InvalidArgumentError(
            absl::StrCat("model.merges[", rank, "]: '", *part, "' is not in model.vocab"));
      }
    }
    rules_.push_back({ids_.at(left), ids_.at(right), ids_.at(merged)});
    // Of a pair that is listed twice the later place counts.
    ranks_[pair_key(rules_.back().left, rules_.back().right)] = static_cast<uint32_t>(rank);
  }
  return absl::OkStatus();
}

absl::Status Bpe::add_bytes() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string_view spelling = spell_byte(static_cast<unsigned char>(byte));
    const std::optional<TokenId> token = token_to_id(spelling);
    if (!token && occurs_in_utf8(byte)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab: no token for byte ", byte, " ('", to_absl(spelling),
                       "'); a byte-level vocabulary must have every byte"));
    }
    byte_tokens_[byte] = token.value_or(kNoToken);
  }
  return absl::OkStatus();
}

std::optional<TokenId> Bpe::token_to_id(std::string_view spelling) const {
  const auto it = ids_.find(to_absl(spelling));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

uint32_t Bpe::rank_of(TokenId left, TokenId right) const {
  const auto it = ranks_.find(pair_key(left, right));
  return it == ranks_.end() ? kNoRank : it->second;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& tokens) const {
  if (ignore_merges_) {
    if (const auto whole = token_to_id(spell_bytes(piece))) {
      tokens.push_back(*whole);
      return;
    }
  }
  if (piece.size() <= kMaxShortPiece) {
    encode_short(piece, tokens);
  } else {
    encode_long(piece, scratch, tokens);
  }
}

void Bpe::encode_short(std::string_view piece, std::vector<TokenId>& tokens) const {
  std::array<TokenId, kMaxShortPiece> symbols;
  std::array<uint32_t, kMaxShortPiece> ranks;  // of symbol i with symbol i + 1
  size_t size = piece.size();
  for (size_t i = 0; i < size; ++i) symbols[i] = byte_tokens_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < size; ++i) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
  while (size > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + size - 1);
    if (*best == kNoRank) break;
    const size_t i = best - ranks.begin();
    symbols[i] = rules_[*best].merged;
    std::copy(symbols.begin() + i + 2, symbols.begin() + size, symbols.begin() + i + 1);
    std::copy(ranks.begin() + i + 1, ranks.begin() + size - 1, ranks.begin() + i);
    --size;
    if (i > 0) ranks[i - 1] = rank_of(symbols[i - 1], symbols[i]);
    if (i + 1 < size) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
  }
  tokens.insert(tokens.end(), symbols.begin(), symbols.begin() + size);
}

void Bpe::encode_long(std::string_view piece, Scratch& scratch,
                      std::vector<TokenId>& tokens) const {
  const auto size = static_cast<uint32_t>(piece.size());
  scratch.symbols.resize(size);
  scratch.candidates.clear();
  for (uint32_t i = 0; i < size; ++i) {
    scratch.symbols[i] = {byte_tokens_[static_cast<uint8_t>(piece[i])], i == 0 ? kNoSymbol : i - 1,
                          i + 1 == size ? kNoSymbol : i + 1};
  }
  for (uint32_t i = 0; i + 1 < size; ++i) {
    const uint32_t rank = rank_of(scratch.symbols[i].token, scratch.symbols[i + 1].token);
    if (rank != kNoRank) scratch.candidates.push_back(candidate(rank, i));
  }
  std::make_heap(scratch.candidates.begin(), scratch.candidates.end(), std::greater<>());
  merge_candidates(scratch);
  for (uint32_t i = 0; i != kNoSymbol; i = scratch.symbols[i].next) {
    tokens.push_back(scratch.symbols[i].token);
  }
}

void Bpe::push_candidate(uint32_t left_idx, Scratch& scratch) const {
  const Scratch::Symbol& left = scratch.symbols[left_idx];
  if (left.next == kNoSymbol) return;
  const uint32_t rank = rank_of(left.token, scratch.symbols[left.next].token);
  if (rank == kNoRank) return;
  scratch.candidates.push_back(candidate(rank, left_idx));
  std::push_heap(scratch.candidates.begin(), scratch.candidates.end(), std::greater<>());
}

void Bpe::merge_candidates(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  while (!scratch.candidates.empty()) {
    std::pop_heap(scratch.candidates.begin(), scratch.candidates.end(), std::greater<>());
    const uint64_t best = scratch.candidates.back();
    scratch.candidates.pop_back();
    const Rule& rule = rules_[best >> 32];
    const auto left_idx = static_cast<uint32_t>(best);
    Scratch::Symbol& left = symbols[left_idx];
    // A candidate is not removed when a neighbour's merge changes its pair; it no longer fits.
    if (left.token != rule.left || left.next == kNoSymbol) continue;
    Scratch::Symbol& right = symbols[left.next];
    if (right.token != rule.right) continue;
    left.token = rule.merged;
    left.next = right.next;
    right.token = kNoToken;
    if (left.next != kNoSymbol) symbols[left.next].previous = left_idx;
    if (left.previous != kNoSymbol) push_candidate(left.previous, scratch);
    push_candidate(left_idx, scratch);
  }
}

}  // namespace dhs
