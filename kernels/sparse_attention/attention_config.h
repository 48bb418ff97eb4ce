// How sparse_attention runs on a GPU: pure choices, made on the host, and the shared memory they
// need. For sparse_attention.cu and its test. Plain data: nvcc compiles this header.
//
// A block of threads takes one query row, some of its heads and a run of its segments. What it
// takes never shows in the result's bits: a segment is always computed alone and segments are
// always merged in order, by the block that had them all or by a second kernel.
#pragma once

#include "kernels/sparse_attention/sparse_attention.h"

namespace dhs {

inline constexpr int kAttentionThreads = 256;
inline constexpr int32_t kPlainHeads = 8;      // of a block without tensor cores: one per warp
inline constexpr int32_t kPlainTileRows = 32;  // one per lane
inline constexpr int32_t kMaxTensorCoreLatent = 512;
inline constexpr int32_t kMaxPlainLatent = 1024;

struct AttentionDesc {
  RowLayout layout;
  int64_t num_query_rows = 0;
  int32_t num_heads = 0;
  int32_t top_k = 0;
  int32_t num_sms = 0;
  int32_t compute_capability = 0;
  int64_t scratch_bytes = 0;
};

struct AttentionConfig {
  bool tensor_cores = false;  // else f32 arithmetic: f32 rows, and dims that are no multiple of 16
  int32_t heads_per_block = 0;  // 16, 32 or 64; kPlainHeads
  int32_t ring_rows = 0;        // bf16 rows that shared memory holds: a tile and what is prefetched
  int32_t segments_per_block = 0;
  int64_t rows_per_launch = 0;  // query rows whose partial results fit in the scratch
  int64_t shared_bytes = 0;
};

constexpr int32_t attention_segments(int32_t top_k) {
  return (top_k + kAttentionSegmentRows - 1) / kAttentionSegmentRows;
}

// ---- Shared memory, in bytes --------------------------------------------------------------------

// Rows start 16 bytes further than a multiple of 32: eight of them, read at the same column, meet
// all banks once.
constexpr int64_t attention_row_pitch(const RowLayout& layout) {
  return (layout.latent_dim + layout.rope_dim) * 2 + 16;
}
inline constexpr int64_t kWeightsPitch = kAttentionTileRows * 2 + 16;

// The rows of two segments: where they come from, which of them fill a slot, how many there are.
struct SegmentTable {
  const std::byte* sources[2][kAttentionSegmentRows];
  uint8_t fills[2][kAttentionSegmentRows];
  int32_t num_rows[2];
};

// What a block knows of each of its heads, between the stages of a tile.
template <int kHeads>
struct HeadStates {
  float max[2][kHeads];  // before and after this tile: which is which alternates
  float rescale[kHeads];
  float max_of_rows[kAttentionTileRows / 16][kHeads];  // partial results over 16 rows
  float sum_of_rows[kAttentionTileRows / 16][kHeads];
};

constexpr int64_t head_states_bytes(int32_t heads_per_block) {
  return heads_per_block * static_cast<int64_t>(sizeof(HeadStates<1>));
}

// q, weights, states, table, fp8 rows as stored, then the ring.
constexpr int64_t tensor_core_shared_bytes(const RowLayout& layout, int32_t heads_per_block,
                                           int32_t ring_rows) {
  const int64_t raw =
      layout.format == RowFormat::kFp8 ? kAttentionTileRows * layout.row_bytes() : 0;
  return heads_per_block * (attention_row_pitch(layout) + kWeightsPitch) +
         head_states_bytes(heads_per_block) + row_aligned(sizeof(SegmentTable)) + raw +
         ring_rows * attention_row_pitch(layout);
}

constexpr int64_t plain_row_pitch(const RowLayout& layout) { return layout.row_bytes() + 16; }

// table, rows as stored, q, weights, factors.
constexpr int64_t plain_shared_bytes(const RowLayout& layout) {
  return row_aligned(sizeof(SegmentTable)) + kPlainTileRows * plain_row_pitch(layout) +
         row_aligned(kPlainHeads * (layout.latent_dim + layout.rope_dim) * 4) +
         kPlainHeads * (kPlainTileRows + 4) * 4;
}

// What one block may ask for.
constexpr int64_t max_shared_bytes(int32_t compute_capability) {
  const bool is_large = compute_capability == 80 || compute_capability == 87;
  const bool is_small = compute_capability < 90 || compute_capability >= 120;
  return (is_large ? 163 : is_small ? 99 : 227) << 10;
}

// ---- Choices ------------------------------------------------------------------------------------

constexpr bool fits_tensor_cores(const RowLayout& layout) {
  return layout.format != RowFormat::kF32 && layout.latent_dim % 16 == 0 &&
         layout.rope_dim % 16 == 0 && layout.latent_dim <= kMaxTensorCoreLatent;
}

// The configuration with the least estimated time. The launch aborts on what none fits: rows of
// more than kMaxPlainLatent latents, or too long for shared memory.
AttentionConfig pick_attention_config(const AttentionDesc& desc);
// As above with the given number of heads (tensor cores only) and segments per block.
AttentionConfig make_attention_config(const AttentionDesc& desc, int32_t heads_per_block,
                                      int32_t segments_per_block);

// CUDA only. Any configuration of make_attention_config gives the same bits.
void launch_sparse_attention_as(const AttentionConfig& config, const SparseAttentionParams& params,
                                Stream stream);

}  // namespace dhs
