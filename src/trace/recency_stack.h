// Rows ordered by how recently they were used: depth 0 is the latest. What an exact LRU cache of b
// rows holds is depths 0 .. b-1, for every b at once.
//
// Every use takes the next place of a long line; a bitmap says which places are still current, and
// a Fenwick tree over its words counts them. touch, erase, at and depth_of cost O(log rows), with a
// tree so small that it stays in the nearest cache. When the line is full its gaps are closed,
// which costs O(rows) once in at least rows / 4 touches. at() of neighbouring depths in a row is
// O(1). Not even its const functions are for several threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dhs::trace {

class RecencyStack {
 public:
  // Puts the row (>= 0) on top, whether or not it was there.
  void touch(int32_t row);
  void erase(int32_t row);  // must be there

  int64_t size() const { return num_rows_; }
  bool contains(int32_t row) const;
  int32_t at(int64_t depth) const;  // 0 <= depth < size()
  std::optional<int64_t> depth_of(int32_t row) const;

 private:
  int64_t rank_of(int32_t place) const;  // current places below it
  bool move_near(int64_t rank) const;
  void find_word(int64_t rank) const;
  void add_to_tree(int64_t word, int32_t change);
  void make_room();

  std::vector<int32_t> place_of_;  // by row; negative: not there
  std::vector<int32_t> row_at_;    // by place
  std::vector<uint64_t> is_current_;
  std::vector<int32_t> tree_;  // [words + 1] Fenwick tree of the words' bit counts
  int64_t tree_top_ = 0;       // the largest power of two <= words
  int32_t next_place_ = 0;
  int64_t num_rows_ = 0;
  // The word that at() looked into last and the current places below it; none after a change.
  mutable int64_t near_word_ = -1;
  mutable int64_t near_rank_ = 0;
};

}  // namespace dhs::trace
