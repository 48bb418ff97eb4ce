// How sparse_attention runs on a GPU: pure choices, made on the host, and the shared memory they
// need. For sparse_attention.cu and its test. Plain data: nvcc compiles this header.
//
// A block of threads takes one query row, some of its heads and a run of its segments. What it
// takes never shows in the result's bits: a segment is always computed alone and segments are
// always merged in order, by the block that had them all or by a second kernel. Which kernel it is
// does show. So that choice looks at the layout, the number of heads and the device, never at the
// number of query rows.
#pragma once

#include "kernels/sparse_attention/sparse_attention.h"

namespace dhs {

inline constexpr int kAttentionThreads = 256;
inline constexpr int32_t kPlainHeads = 8;      // of a block without tensor cores: one per warp
inline constexpr int32_t kPlainTileRows = 32;  // one per lane
inline constexpr int32_t kMaxTensorCoreLatent = 512;
inline constexpr int32_t kMaxPlainLatent = 1024;
inline constexpr int32_t kWarpgroupHeads = 64;  // rows of a warpgroup's product

enum class AttentionKernel : uint8_t {
  kPlain,      // f32 arithmetic: f32 rows, and dims that tensor cores do not take
  kMma,        // mma.sync: bf16 and fp8 rows, sm_80 and later
  kWarpgroup,  // wgmma: sm_90a alone, blocks of 64 heads
};

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
  AttentionKernel kernel = AttentionKernel::kPlain;
  int32_t heads_per_block = 0;  // kMma: 16, 32 or 64; kPlainHeads; kWarpgroupHeads
  int32_t ring_rows = 0;  // kMma: bf16 rows that shared memory holds, a tile and what is prefetched
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

// The rows of two neighbouring parts of the selection, kRows each: where they come from, which of
// them fill a slot, how many there are.
template <int kRows>
struct RowTable {
  const std::byte* sources[2][kRows];
  uint8_t fills[2][kRows];
  int32_t num_rows[2];
};
using SegmentTable = RowTable<kAttentionSegmentRows>;
using TileTable = RowTable<kAttentionTileRows>;

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

// kWarpgroup keeps matrices as blocks of 64 columns: 64 lines of 128 bytes, swizzled (wgmma.h).
inline constexpr int64_t kColumnBlockBytes = 64 * 128;
constexpr int64_t column_blocks(const RowLayout& layout) {
  return (layout.latent_dim + layout.rope_dim + 63) / 64;
}
// bf16 tiles in shared memory: one is computed, the next one on its way. fp8 rows are on their way
// as stored, so one tile does.
constexpr int32_t warpgroup_tiles(RowFormat format) { return format == RowFormat::kFp8 ? 1 : 2; }

// What a block knows of its heads.
struct WarpgroupStates {
  float rescale[kWarpgroupHeads];     // of the sums before this tile
  float factors[3][kWarpgroupHeads];  // of a segment: earlier, next, inverse
};

// q, weights, tiles, states, table, fp8 rows as stored.
constexpr int64_t warpgroup_shared_bytes(const RowLayout& layout) {
  const int64_t raw =
      layout.format == RowFormat::kFp8 ? kAttentionTileRows * layout.row_bytes() : 0;
  return (column_blocks(layout) * (1 + warpgroup_tiles(layout.format)) + 1) * kColumnBlockBytes +
         row_aligned(sizeof(WarpgroupStates)) + row_aligned(sizeof(TileTable)) + raw;
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

// Two warpgroups share the latents, half of them in one product: 64 or 256 columns.
constexpr bool fits_warpgroups(const RowLayout& layout) {
  return fits_tensor_cores(layout) && (layout.latent_dim == 128 || layout.latent_dim == 512) &&
         warpgroup_shared_bytes(layout) <= max_shared_bytes(90);
}

// The kernel for these rows and heads on this device. A warpgroup's product has 64 rows, which are
// heads of one query row: below 64 heads a part of it would be lost. By the estimates of
// attention_config.cc, up to 8 query rows would be done sooner in mma.sync's smaller blocks, more
// are with wgmma; but one choice has to serve them all.
AttentionKernel pick_attention_kernel(const AttentionDesc& desc);

// How work is spread over blocks. `heads_per_block` is kMma's.
struct AttentionSpread {
  AttentionKernel kernel;
  int32_t heads_per_block;
  int32_t segments_per_block;
};

// The configuration with the least estimated time. The launch aborts on what none fits: rows of
// more than kMaxPlainLatent latents, or too long for shared memory.
AttentionConfig pick_attention_config(const AttentionDesc& desc);
AttentionConfig pick_attention_config(const AttentionDesc& desc, AttentionKernel kernel);
// The given one; kPlain where its rows do not fit. kWarpgroup must fit.
AttentionConfig make_attention_config(const AttentionDesc& desc, const AttentionSpread& spread);

// CUDA only. Any configuration of one kernel gives the same bits.
void launch_sparse_attention_as(const AttentionConfig& config, const SparseAttentionParams& params,
                                Stream stream);

}  // namespace dhs
