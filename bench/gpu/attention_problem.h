// Query rows of GLM-5's shape over slots that hold random rows.
#pragma once

#include "kernels/sparse_attention/sparse_attention.h"
#include "meter.h"

namespace dhs::bench {

struct AttentionShape {
  RowLayout row;
  int64_t num_layers = 1;  // rows of a record; attention reads the first
  int64_t num_slots = 0;
  int64_t num_query_rows = 0;  // for calls to choose from
  int64_t num_heads = 64;
  int64_t top_k = 2048;
  int64_t record_bytes() const { return num_layers * row.row_bytes(); }
};

class AttentionProblem {
 public:
  AttentionProblem(const Bench& bench, const AttentionShape& shape);

  // Query rows [first, first + count).
  SparseAttentionParams params(int64_t first, int64_t count) const;
  const AttentionShape& shape() const { return shape_; }
  ChunkedItems records() const;
  const std::vector<int32_t>& slots() const { return slots_; }  // [num_query_rows, top_k]
  Work work(int64_t num_query_rows) const;

 private:
  const AttentionShape shape_;
  const std::vector<int32_t> slots_;
  MemoryRange records_, chunk_offset_, device_slots_, q_latent_, q_rope_, out_;
};

}  // namespace dhs::bench
