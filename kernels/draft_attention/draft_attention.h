// draft_attention: the rows of draft blocks attend to the draft's context and to their block.
//
// Row i of a block stands at position p = first_position + i. It sees the context, positions
// [0, first_position), whose keys and values lie in draft pages, and the rows of its own block: all
// of them, or with `is_causal` rows 0 to i. Of both it sees only positions > p - window, when there
// is a window. Head h reads key head h / (num_heads / num_kv_heads).
//
//   out[i, h] = sum_j softmax_j(softmax_scale * q[i, h] . k[j]) * v[j]         over what is seen
//
// (grouped-query attention, arXiv 2305.13245). A context position whose page is not on the device
// is not seen: a draft whose context is cold proposes worse, never wrongly. What a page holds at
// positions >= first_position is not used.
//
// Arithmetic is f32, the softmax runs over tiles of fixed positions with a running maximum, so the
// bits of a block depend on its own data only: not on other blocks, on threads or on where pages
// lie. They do depend on the device. Keys, values and queries are finite.
//
// Bytes: per block and head 2 * seen * head_dim of the pages' dtype; on CUDA that many per 32 query
// rows of a key head. FLOPs: 4 * seen * head_dim per row and head.
// Preconditions: head_dim is a multiple of 8 and at most 256; num_heads is a multiple of
// num_kv_heads; page_tokens is 64; the last axis of q, k, v and out is contiguous, the others may
// be strided.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

// Where the draft's keys and values of one host block's tokens lie within their draft page:
// [layer][K, V][page_tokens][num_kv_heads * head_dim]. The same bytes in both tiers. Offsets are in
// bytes.
struct DraftPageLayout {
  DType dtype = DType::kBf16;  // or kF32
  int32_t num_layers = 0;      // 0: the draft has no pages
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t page_tokens = 64;

  constexpr int64_t width() const { return int64_t{num_kv_heads} * head_dim; }
  // Of one token's keys, or its values, in one layer.
  constexpr int64_t token_bytes() const { return width() * dtype_bytes(dtype); }
  constexpr int64_t offset(int32_t layer, bool is_value, int64_t token) const {
    return ((int64_t{2} * layer + (is_value ? 1 : 0)) * page_tokens + token) * token_bytes();
  }
  // A multiple of 64.
  constexpr int64_t page_bytes() const { return (offset(num_layers, false, 0) + 63) / 64 * 64; }
};

inline constexpr int32_t kMaxDraftHeadDim = 256;

struct DraftAttentionParams {
  DraftPageLayout layout;
  int32_t layer = 0;
  ChunkedItems pages;                              // item_bytes >= page_bytes()
  TensorView<const int32_t, 2> page_table;         // [num_sequences, max_num_blocks], -1: absent
  TensorView<const int32_t, 1> sequence_of_block;  // [num_blocks]
  TensorView<const int32_t, 1> first_position;     // [num_blocks], negative: padding, zeros out
  int32_t block_rows = 0;
  bool is_causal = false;  // within the block
  int64_t window = 0;      // 0: none
  float softmax_scale = 1.0f;
  TensorView<const float, 3> q;  // [num_blocks * block_rows, num_heads, head_dim]
  TensorView<const float, 3> k;  // [num_blocks * block_rows, num_kv_heads, head_dim]: of the blocks
  TensorView<const float, 3> v;  // as k
  TensorView<float, 3> out;      // as q, must not overlap it
};
void launch_draft_attention(const DraftAttentionParams& params, Stream stream);
void draft_attention_ref(const DraftAttentionParams& params);

}  // namespace dhs
