// sparse_attention: absorbed MLA over the selected rows of one layer.
//
//   s[h, i]  = (q_latent[t, h] . latent_i + q_rope[t, h] . rope_i) * softmax_scale
//   out[t,h] = sum_i softmax_i(s[h, :]) * latent_i               i over slots[t, :], -1 skipped
//
// (DeepSeek-V2, section 2.1: MQA over the shared latent.) Rows are read from row-cache slots at
// row_offset within the record, in any row format of kernels/kv_row; they are used as their decoded
// f32. With AVX-512 BF16 and on CUDA's tensor cores, bf16 and fp8 rows stay exact (an e4m3 value
// times its power-of-two scale is exact in bf16), while q and the softmax weights are rounded to
// bf16: each weight moves by 2^-9 at most, and weights are normalised by the sum of the rounded
// ones, so out errs by less than 2^-8 of the latents' magnitude and by about 1e-3 of its own.
// Softmax and accumulation are f32.
//
// The selection is cut into tiles of kAttentionTileRows rows in the order given, merged in that
// order (online softmax); CUDA first merges the tiles of a segment of kAttentionSegmentRows rows,
// then the segments, in order. So bits depend on q, the row contents and their order, the device's
// kind and, on CUDA, whether there are 64 heads; not on slot numbers, other query rows, what other
// heads hold, or how the work was spread over threads. A query row without any slot gives zeros.
// slots are valid entries first, then -1. The last axis of every view is contiguous; row_offset,
// records and rows are multiples of 16 bytes.
// Bytes read per query row: num_selected * row_bytes. FLOPs: 2 * num_selected * num_heads *
// (2 * latent_dim + rope_dim).
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"
#include "kernels/gather/gather.h"
#include "kernels/kv_row/kv_row.h"

namespace dhs {

inline constexpr int kAttentionTileRows = 64;
inline constexpr int kAttentionSegmentRows = 256;  // CUDA: the unit of work that runs in parallel

// Fused retrieval: rows that missed are taken straight from the host block, and the entry that
// names a row first also writes it to its slot. Only this layer's row is fetched; the rest of the
// record is gather's (its first_byte). The result has the same bits as gather followed by plain
// attention. Null miss_of: every slot holds its row already.
struct FusedFetch {
  TensorView<const int32_t, 2> miss_of;  // as resolve wrote it, rows as in `slots`
  TensorView<const FetchOrder, 1> orders;
  HostRecords host;
};

struct SparseAttentionParams {
  RowLayout layout;
  ChunkedItems records;                 // slots of the index group
  int64_t row_offset = 0;               // of this layer's row within a record
  TensorView<const float, 3> q_latent;  // [num_query_rows, num_heads, latent_dim]
  TensorView<const float, 3> q_rope;    // [num_query_rows, num_heads, rope_dim]
  TensorView<const int32_t, 2> slots;   // [num_query_rows, top_k]
  float softmax_scale = 1.0f;
  FusedFetch fetch;
  TensorView<float, 3> out;  // [num_query_rows, num_heads, latent_dim]
};

// Where entry i of query row t finds its row. Precondition: slots(t, i) >= 0.
constexpr const std::byte* selected_row(const SparseAttentionParams& params, int64_t t, int64_t i) {
  const FusedFetch& fetch = params.fetch;
  const int32_t miss = fetch.miss_of.data == nullptr ? -1 : fetch.miss_of(t, i);
  const std::byte* record = miss < 0 ? params.records.at(params.slots(t, i))
                                     : fetch.host.at(fetch.orders(miss >> 1).host_row);
  return record + params.row_offset;
}
// Whether entry i is to write the row it fetched to its slot.
constexpr bool fills_slot(const SparseAttentionParams& params, int64_t t, int64_t i) {
  if (params.fetch.miss_of.data == nullptr || params.slots(t, i) < 0) return false;
  const int32_t miss = params.fetch.miss_of(t, i);
  return miss >= 0 && (miss & 1) != 0;
}

void launch_sparse_attention(const SparseAttentionParams& params, Stream stream);
void sparse_attention_ref(const SparseAttentionParams& params);  // fills no slots

// What the first layer of an index group costs on a GPU, fused or after a gather, for the choice
// between the two. In microseconds, beyond plain attention over resident rows:
//
//   gather  3 (one more launch) + 2 (first answer over PCIe) + misses * record_bytes / link
//   fused   2 * (tiles of a segment that wait for a miss, one after the other)
//           + misses * row_bytes * reads / link
//
// with link = 45 GB/s (PCIe 5.0 x16), row_bytes = record_bytes / num_layers and reads = how many
// blocks of heads fetch each row for themselves. Fused, the record's other layers follow by a
// gather beside the first layer's computation and delay nothing. So fusing pays when there are few
// misses, which is how decoding runs; many misses are the gather's: it reads each byte once and
// keeps the link full.
struct FusedChoice {
  int64_t num_query_rows = 0;
  int64_t expected_misses = 0;  // distinct rows of the pass
  int32_t num_heads = 0;
  int32_t top_k = 0;
  int32_t num_layers = 1;    // of the index group
  int64_t record_bytes = 0;  // of all its layers
  int32_t num_sms = 0;
  int32_t compute_capability = 0;
};
bool prefer_fused(const FusedChoice& choice);

}  // namespace dhs
