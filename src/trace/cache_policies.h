// What textbook policies would miss on a sequence of selections: the yardsticks of the row cache.
//
// The sequence belongs to one cache: pass after pass, the distinct rows that a pass needs. As in
// kernels/resolve, a pass is one event: its hits are what the cache held when it began, then its
// misses come in, and no row of the pass is evicted. Rows that are written in the pass (the step's
// own tokens) come in without having missed.
//
// All of them return the misses of every pass. The capacity is at least the rows of any pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dhs::trace {

struct Pass {
  std::vector<int32_t> rows;  // distinct
  int64_t num_written = 0;    // the last of them
};

// Exact least recently used; rows of one pass count as used in the order in which it names them.
// One run for all capacities: [capacity][pass]. O(log rows) a row.
std::vector<std::vector<int64_t>> lru_misses(std::span<const Pass> passes,
                                             std::span<const int64_t> capacities);
// The row that came in first, of those that this pass does not need, goes first. O(1) a row.
std::vector<int64_t> fifo_misses(std::span<const Pass> passes, int64_t capacity);
// Any row that this pass does not need. O(1) a row, as long as half of the cache is not needed.
std::vector<int64_t> random_misses(std::span<const Pass> passes, int64_t capacity, uint64_t seed);
// Belady's: the row whose next use is farthest, which no policy can beat. O(log rows) a row.
std::vector<int64_t> belady_misses(std::span<const Pass> passes, int64_t capacity);

}  // namespace dhs::trace
