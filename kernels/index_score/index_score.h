// index_score: lightning indexer scores of query rows against all visible keys of their sequence.
//
//   score[t, s] = sum_h w[t, h] * relu( q[t, h] . k[s] * softmax_scale ),   s < visible[t]
//
// (DeepSeek-V3.2; its factor num_heads^-0.5 belongs into softmax_scale or w.) Keys live in pages of
// block_tokens (kernels/ kv_row). For bf16 and fp8 keys q is rounded to bf16, and products are of
// bf16 values: an e4m3 value is exact in bf16, and the key's scale multiplies the finished sum over
// heads. For f32 keys all is f32. Accumulation is f32 in a fixed order: dims ascending (in groups,
// where the device multiplies groups of bf16), heads lane by lane, then a fixed tree over lanes. So
// a score's bits depend on (q, w, k), the number of heads and the instruction set or GPU only: not
// on the other query rows, the place of the key in its page, `visible`, threads or grid.
// softmax_scale > 0 is folded into w. Subnormal bf16 inputs may count as zero. Scores beyond
// visible[t] are not written. The last axis of every view is contiguous. On CUDA num_heads *
// index_dim is at most 32768, and the grid depends on the number of rows and the width of `scores`
// only. Bytes read: visible * key_bytes; FLOPs: 2 * visible * num_heads * index_dim.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"
#include "kernels/kv_row/kv_row.h"

namespace dhs {

struct IndexScoreParams {
  IndexKeyLayout layout;
  ChunkedItems pages;                            // an item holds the pages of all index groups
  int64_t group_offset = 0;                      // of this group's page within an item
  TensorView<const int32_t, 2> item_table;       // [num_sequences, max_num_blocks] item per block
  TensorView<const float, 3> q;                  // [num_query_rows, num_heads, index_dim]
  TensorView<const float, 2> head_weights;       // [num_query_rows, num_heads]
  TensorView<const int32_t, 1> sequence_of_row;  // [num_query_rows]
  TensorView<const int32_t, 1> visible;          // [num_query_rows] keys 0..visible-1
  float softmax_scale = 1.0f;
  TensorView<float, 2> scores;  // out: [num_query_rows, >= max visible]
};

void launch_index_score(const IndexScoreParams& params, Stream stream);
void index_score_ref(const IndexScoreParams& params);

}  // namespace dhs
