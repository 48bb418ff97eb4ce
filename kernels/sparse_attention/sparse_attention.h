// sparse_attention: absorbed MLA over the selected rows of one layer.
//
//   s[h, i]  = (q_latent[t, h] . latent_i + q_rope[t, h] . rope_i) * softmax_scale
//   out[t,h] = sum_i softmax_i(s[h, :]) * latent_i               i over slots[t, :], -1 skipped
//
// (DeepSeek-V2, section 2.1: MQA over the shared latent.) Rows are read from row-cache slots at
// row_offset within the record, in any row format of kernels/kv_row; they are used as their decoded
// f32. With AVX-512 BF16, bf16 and fp8 rows stay exact (an e4m3 value times its power-of-two scale
// is exact in bf16), while q and the softmax weights are rounded to bf16: each weight moves by 2^-9
// at most, and weights are normalised by the sum of the rounded ones, so out errs by less than 2^-8
// of the latents' magnitude and by about 1e-3 of its own. Softmax and accumulation are f32. The
// selection is cut into tiles of kAttentionTileRows rows in the order given, tiles are merged in
// that order (online softmax): bits depend on q, the row contents and their order, and the
// instruction set only; not on slot numbers, other query rows, other heads or threads. A query row
// without any slot gives zeros. slots are valid entries first, then -1. The last axis of every view
// is contiguous.
// Bytes read per query row: num_selected * row_bytes. FLOPs: 2 * num_selected * num_heads *
// (2 * latent_dim + rope_dim).
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"
#include "kernels/kv_row/kv_row.h"

namespace dhs {

inline constexpr int kAttentionTileRows = 64;

struct SparseAttentionParams {
  RowLayout layout;
  ChunkedItems records;                 // slots of the index group
  int64_t row_offset = 0;               // of this layer's row within a record
  TensorView<const float, 3> q_latent;  // [num_query_rows, num_heads, latent_dim]
  TensorView<const float, 3> q_rope;    // [num_query_rows, num_heads, rope_dim]
  TensorView<const int32_t, 2> slots;   // [num_query_rows, top_k]
  float softmax_scale = 1.0f;
  TensorView<float, 3> out;  // [num_query_rows, num_heads, latent_dim]
};

void launch_sparse_attention(const SparseAttentionParams& params, Stream stream);
void sparse_attention_ref(const SparseAttentionParams& params);

}  // namespace dhs
