// Spreads the prefetch of the next tile's rows evenly over the work on this one. In an unnamed
// namespace, as in kernels/kv_row/vector_f32.h.
#pragma once

#include "kernels/sparse_attention/sparse_attention_tables.h"

namespace dhs {
namespace {

class NextRowsPrefetch {
 public:
  NextRowsPrefetch(const AttentionTile& tile, int64_t num_units)
      : tile_(tile), lines_per_row_((tile.row_bytes + kCacheLineBytes - 1) / kCacheLineBytes) {
    const int64_t num_lines = tile.num_next_rows * lines_per_row_;
    lines_per_unit_ = (num_lines + num_units - 1) / num_units;
  }

  // Prefetches the share of `num_units` units of work.
  void advance(int64_t num_units) {
    for (int64_t left = num_units * lines_per_unit_; left > 0 && row_ < tile_.num_next_rows;) {
      __builtin_prefetch(tile_.next_rows[row_] + line_ * kCacheLineBytes, 0, kIntoL1);
      if (++line_ == lines_per_row_) {
        line_ = 0;
        ++row_;
      }
      --left;
    }
  }

 private:
  static constexpr int64_t kCacheLineBytes = 64;
  static constexpr int kIntoL1 = 3;

  const AttentionTile& tile_;
  int64_t lines_per_row_;
  int64_t lines_per_unit_;
  int64_t line_ = 0;
  int32_t row_ = 0;
};

}  // namespace
}  // namespace dhs
