#include "trace/recency_stack.h"

#include <algorithm>
#include <bit>

#include "dhisparse/base.h"

namespace dhs::trace {
namespace {

constexpr int32_t kNowhere = -1;
constexpr int kWordBits = 64;
constexpr int64_t kMinPlaces = 1024;
constexpr int kMaxNearSteps = 12;  // about what a way down the tree costs

constexpr uint64_t bit_of(int32_t place) { return uint64_t{1} << (place % kWordBits); }

// Set bits of every byte, without the instruction that the oldest machines lack.
constexpr uint64_t byte_counts(uint64_t word) {
  word -= (word >> 1) & 0x5555555555555555;
  word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
  return (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
}

constexpr uint64_t kEveryByte = 0x0101010101010101;

constexpr int32_t count_bits(uint64_t word) {
  return static_cast<int32_t>((byte_counts(word) * kEveryByte) >> 56);
}

// Where the set bit with `rank` set bits below it is: the byte first, then the bit.
int select_bit(uint64_t word, int64_t rank) {
  const uint64_t up_to_byte = byte_counts(word) * kEveryByte;  // byte i: of bytes 0 .. i
  int byte = 0;
  while (static_cast<int64_t>((up_to_byte >> (8 * byte)) & 0xff) <= rank) ++byte;
  if (byte > 0) rank -= static_cast<int64_t>((up_to_byte >> (8 * (byte - 1))) & 0xff);
  uint64_t rest = word >> (8 * byte);
  for (; rank > 0; --rank) rest &= rest - 1;
  return 8 * byte + std::countr_zero(rest);
}

}  // namespace

void RecencyStack::touch(int32_t row) {
  DHS_CHECK(row >= 0, "row ", row);
  if (contains(row)) erase(row);
  if (next_place_ == static_cast<int64_t>(row_at_.size())) make_room();
  if (row >= static_cast<int64_t>(place_of_.size())) {
    place_of_.resize(std::max<size_t>(row + 1, place_of_.size() * 9 / 8), kNowhere);
  }
  const int32_t place = next_place_++;
  place_of_[row] = place;
  row_at_[place] = row;
  is_current_[place / kWordBits] |= bit_of(place);
  add_to_tree(place / kWordBits, 1);
  ++num_rows_;
}

void RecencyStack::erase(int32_t row) {
  DHS_CHECK(contains(row), "row ", row, " is not in the stack");
  const int32_t place = place_of_[row];
  place_of_[row] = kNowhere;
  is_current_[place / kWordBits] &= ~bit_of(place);
  add_to_tree(place / kWordBits, -1);
  --num_rows_;
}

bool RecencyStack::contains(int32_t row) const {
  return row < static_cast<int64_t>(place_of_.size()) && place_of_[row] != kNowhere;
}

int32_t RecencyStack::at(int64_t depth) const {
  DHS_CHECK(depth >= 0 && depth < num_rows_, "depth ", depth, " of ", num_rows_, " rows");
  const int64_t rank = num_rows_ - 1 - depth;
  if (!move_near(rank)) find_word(rank);
  return row_at_[near_word_ * kWordBits + select_bit(is_current_[near_word_], rank - near_rank_)];
}

// Neighbouring depths lie in neighbouring words: a few steps from the last word asked for, if they
// are enough.
bool RecencyStack::move_near(int64_t rank) const {
  if (near_word_ < 0) return false;
  for (int step = 0; step < kMaxNearSteps; ++step) {
    if (rank < near_rank_) {
      near_rank_ -= count_bits(is_current_[--near_word_]);
      continue;
    }
    const int64_t next_rank = near_rank_ + count_bits(is_current_[near_word_]);
    if (rank < next_rank) return true;
    near_rank_ = next_rank;
    ++near_word_;
  }
  return false;
}

void RecencyStack::find_word(int64_t rank) const {
  int64_t word = 0;
  int64_t below = 0;
  for (int64_t step = tree_top_; step > 0; step /= 2) {
    const int64_t next = word + step;
    if (next < static_cast<int64_t>(tree_.size()) && below + tree_[next] <= rank) {
      below += tree_[next];
      word = next;
    }
  }
  near_word_ = word;
  near_rank_ = below;
}

std::optional<int64_t> RecencyStack::depth_of(int32_t row) const {
  if (!contains(row)) return std::nullopt;
  return num_rows_ - 1 - rank_of(place_of_[row]);
}

int64_t RecencyStack::rank_of(int32_t place) const {
  int64_t rank = count_bits(is_current_[place / kWordBits] & (bit_of(place) - 1));
  for (int64_t i = place / kWordBits; i > 0; i &= i - 1) rank += tree_[i];
  return rank;
}

void RecencyStack::add_to_tree(int64_t word, int32_t change) {
  near_word_ = -1;
  for (int64_t i = word + 1; i < static_cast<int64_t>(tree_.size()); i += i & -i) {
    tree_[i] += change;
  }
}

// Closes the gaps and leaves at least a quarter as many places free as there are rows.
void RecencyStack::make_room() {
  int32_t kept = 0;
  for (int32_t place = 0; place < next_place_; ++place) {
    if ((is_current_[place / kWordBits] & bit_of(place)) == 0) continue;
    row_at_[kept] = row_at_[place];
    place_of_[row_at_[kept]] = kept;
    ++kept;
  }
  next_place_ = kept;
  const int64_t wanted = std::max(kMinPlaces, num_rows_ + num_rows_ / 4);
  if (static_cast<int64_t>(row_at_.size()) < wanted) {
    row_at_.resize(round_up(wanted + wanted / 4, kWordBits));
  }
  const auto num_words = static_cast<int64_t>(row_at_.size()) / kWordBits;
  is_current_.assign(num_words, 0);
  tree_.assign(num_words + 1, 0);
  tree_top_ = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_words)));
  for (int32_t place = 0; place < kept; ++place) is_current_[place / kWordBits] |= bit_of(place);
  for (int64_t word = 0; word < num_words; ++word) {
    if (is_current_[word] != 0) add_to_tree(word, count_bits(is_current_[word]));
  }
}

}  // namespace dhs::trace
