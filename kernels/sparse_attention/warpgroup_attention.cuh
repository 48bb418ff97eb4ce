// Attention over bf16 and fp8 rows by wgmma, 64 heads of one query row. See warpgroup_attention.cu.
#pragma once

#include "kernels/cuda/cp_async.h"
#include "kernels/cuda/wgmma.h"
#include "kernels/kv_row/kv_row_device.cuh"
#include "kernels/sparse_attention/attention_segments.cuh"

namespace dhs::cuda {

static_assert(kAttentionThreads == 2 * simt::kWarpgroupThreads);
static_assert(kAttentionTileRows == 64 && kWarpgroupHeads == 64);

// The start of a block's shared memory: what wgmma reads has to lie at multiples of this.
struct alignas(simt::kSwizzledAtomBytes) SharedAtom {
  std::byte bytes[simt::kSwizzledAtomBytes];
};

// Shared memory of a block. Matrices are blocks of 64 columns, kColumnBlockBytes each, of 64
// swizzled lines: column c of line i is at column_block(c / 64) and swizzled_offset(i, c % 64 / 8).
struct WarpgroupShared {
  std::byte* q;        // [64 heads, latent_dim + rope_dim], bf16
  std::byte* weights;  // [64 heads, 64 rows], bf16
  std::byte* tiles;    // [warpgroup_tiles()] of [64 rows, latent_dim + rope_dim], bf16
  WarpgroupStates* states;
  TileTable* table;
  std::byte* stored;  // fp8 only: the next tile's rows as stored
  int64_t matrix_bytes;

  __device__ WarpgroupShared(std::byte* base, const RowLayout& layout)
      : matrix_bytes(column_blocks(layout) * kColumnBlockBytes) {
    q = base;
    weights = base += matrix_bytes;
    tiles = base += kColumnBlockBytes;
    base += warpgroup_tiles(layout.format) * matrix_bytes;
    states = reinterpret_cast<WarpgroupStates*>(base);
    table = reinterpret_cast<TileTable*>(base += row_aligned(sizeof(WarpgroupStates)));
    stored = base + row_aligned(sizeof(TileTable));
  }
};

// Vector v (8 columns) of line i of a matrix.
__device__ __forceinline__ uint4* matrix_vector(std::byte* matrix, int32_t i, int32_t v) {
  return reinterpret_cast<uint4*>(
      matrix + v / 8 * kColumnBlockBytes +
      simt::swizzled_offset(static_cast<unsigned>(i), static_cast<unsigned>(v % 8)));
}

template <int kLatentDim, bool kFp8>
class WarpgroupAttention {
 public:
  __device__ WarpgroupAttention(const AttentionLaunch& launch, std::byte* shared)
      : shared_(shared, launch.params.layout),
        block_(launch),
        layout_(launch.params.layout),
        // The same for all lanes, and the compiler should know.
        warp_(__shfl_sync(kAllLanes, static_cast<int32_t>(threadIdx.x / 32), 0)),
        lane_(static_cast<int32_t>(threadIdx.x % 32)) {}

  __device__ void run();

 private:
  static constexpr int kTilesPerSegment = kAttentionSegmentRows / kAttentionTileRows;
  static constexpr int kWarps = kAttentionThreads / 32;
  static constexpr int kWarpsPerGroup = kWarps / 2;
  static constexpr int kColumns = kLatentDim / 2;  // of the weighted sums: a warpgroup's
  static constexpr int kVectors = 8;               // of a line
  static constexpr float kLog2E = 1.44269504088896341f;

  // The first warpgroup scores; meanwhile the second one loads.
  __device__ bool loads() const { return warp_ >= kWarpsPerGroup; }
  // Tile n of the query row: rows [64n, 64n + 64) of its selection.
  __device__ int32_t num_rows_of(int32_t n) const { return shared_.table->num_rows[n % 2]; }
  __device__ std::byte* tile(int32_t n) const {
    return shared_.tiles + n % warpgroup_tiles(layout_.format) * shared_.matrix_bytes;
  }
  // Of the two heads that a thread has parts of: `half` 0 or 1.
  __device__ int32_t head_of(int half) const {
    return warp_ % kWarpsPerGroup * 16 + half * 8 + lane_ / 4;
  }

  __device__ void load_table(int32_t n) const;
  __device__ void load_query() const;
  __device__ void load_rows(int32_t n) const;
  __device__ void load_row(int32_t n, int32_t i) const;
  __device__ void fill_slots(int32_t n) const;
  __device__ void decode_rows(int32_t n) const;
  __device__ void score(int32_t n, float (&scores)[32]) const;
  __device__ void weigh(int32_t num_rows, float (&scores)[32]);
  __device__ void accumulate(int32_t n);
  __device__ void rescale_sums();
  __device__ void start_segment();
  __device__ void finish_segment(int32_t n);
  __device__ void store_sums(int32_t segment, const SegmentPlace& place) const;

  WarpgroupShared shared_;
  AttentionBlock block_;
  RowLayout layout_;
  int32_t warp_;
  int32_t lane_;
  // The scoring warpgroup's: of head_of(0) and head_of(1), over the segment and the run before it.
  // All lanes of a head hold the same, but only its first keeps run_.
  Softmax segment_[2], run_[2];
  // Weighted sums, as wgmma has them: columns [0, kColumns) or [kColumns, 2 * kColumns).
  float sums_[kColumns / 2];
};

// ---- Loading ------------------------------------------------------------------------------------

// One thread per row: the first 64 of the loading warpgroup.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::load_table(int32_t n) const {
  const auto i = static_cast<int32_t>(threadIdx.x - simt::kWarpgroupThreads);
  if (i < kAttentionTileRows) load_row_table(block_, n, i, *shared_.table);
}

// q, rounded to bf16; zeros for heads that do not exist.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::load_query() const {
  const auto& params = block_.params();
  for (int32_t head = warp_; head < kWarpgroupHeads; head += kWarps) {
    const bool exists = head < block_.num_heads();
    const int64_t h = block_.first_head() + (exists ? head : 0);
    const float* latent = params.q_latent.data + block_.row() * params.q_latent.strides[0] +
                          h * params.q_latent.strides[1];
    const float* rope =
        params.q_rope.data + block_.row() * params.q_rope.strides[0] + h * params.q_rope.strides[1];
    for (int32_t d = lane_; d < kLatentDim + layout_.rope_dim; d += 32) {
      const float value = d < kLatentDim ? latent[d] : rope[d - kLatentDim];
      auto* vector = reinterpret_cast<Bf16*>(matrix_vector(shared_.q, head, d / 8));
      vector[d % 8] = exists ? encode_bf16(value) : Bf16{0};
    }
  }
}

// Starts copying tile n, a warp of the loading warpgroup per row: into its place, or as stored.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::load_rows(int32_t n) const {
  const int32_t num_rows = num_rows_of(n);
  if (num_rows == 0) return;
  for (int32_t i = warp_ % kWarpsPerGroup; i < kAttentionTileRows; i += kWarpsPerGroup) {
    if (i < num_rows) {
      load_row(n, i);
    } else if (!kFp8) {
      for (int32_t v = lane_; v < layout_.row_bytes() / 16; v += 32) {
        *matrix_vector(tile(n), i, v) = uint4{0, 0, 0, 0};
      }
    }
  }
}

template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::load_row(int32_t n,
                                                                               int32_t i) const {
  const auto* from = reinterpret_cast<const uint4*>(shared_.table->sources[n % 2][i]);
  const auto num_vectors = static_cast<int32_t>(layout_.row_bytes() / 16);
  for (int32_t v = lane_; v < num_vectors; v += 32) {
    uint4* to = kFp8 ? reinterpret_cast<uint4*>(shared_.stored) + i * num_vectors + v
                     : matrix_vector(tile(n), i, v);
    simt::cp_async_16(to, from + v);
  }
}

// By the warp that loads the same rows next.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::fill_slots(int32_t n) const {
  if (!block_.fills_slots()) return;
  const int32_t num_rows = num_rows_of(n);
  const auto num_vectors = static_cast<int32_t>(layout_.row_bytes() / 16);
  for (int32_t i = warp_ % kWarpsPerGroup; i < num_rows; i += kWarpsPerGroup) {
    if (shared_.table->fills[n % 2][i] == 0) continue;
    auto* slot = reinterpret_cast<uint4*>(block_.slot_row(int64_t{n} * kAttentionTileRows + i));
    for (int32_t v = lane_; v < num_vectors; v += 32) {
      slot[v] = kFp8 ? reinterpret_cast<const uint4*>(shared_.stored)[i * num_vectors + v]
                     : *matrix_vector(tile(n), i, v);
    }
  }
}

// fp8: the stored rows -> tile n, a warp per row. Zeros for rows that do not exist.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::decode_rows(int32_t n) const {
  const int32_t num_rows = num_rows_of(n);
  for (int32_t i = warp_; i < kAttentionTileRows; i += kWarps) {
    const std::byte* from = shared_.stored + i * layout_.row_bytes();
    for (int32_t v = lane_; v < (kLatentDim + layout_.rope_dim) / 8; v += 32) {
      *matrix_vector(tile(n), i, v) =
          i < num_rows ? decode_fp8_vector(layout_, from, v) : uint4{0, 0, 0, 0};
    }
  }
}

// ---- Computing ----------------------------------------------------------------------------------

// Unscaled products of 64 heads and 64 rows. The scoring warpgroup.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::score(
    int32_t n, float (&scores)[32]) const {
  const auto q = simt::operand_descriptor(shared_.q, simt::kSwizzledAtomBytes);
  const auto rows = simt::operand_descriptor(tile(n), simt::kSwizzledAtomBytes);
  const int32_t num_steps = (kLatentDim + layout_.rope_dim) / 16;
  simt::wgmma_fence(scores);
#pragma unroll 4
  for (int32_t step = 0; step < num_steps; ++step) {
    const auto bytes = static_cast<unsigned>(step / 4 * kColumnBlockBytes + step % 4 * 32);
    simt::wgmma_bf16<simt::OperandLines::k>(scores, simt::advance(q, bytes),
                                            simt::advance(rows, bytes), step != 0);
  }
  simt::wgmma_commit_group();
  simt::wgmma_wait(scores);
}

// Scores -> weights, rounded to bf16, in shared memory; and the softmax so far. Lanes 4h to 4h + 3
// have the scores of a head.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::weigh(int32_t num_rows,
                                                                            float (&scores)[32]) {
  const float scale = __fmul_rn(block_.params().softmax_scale, kLog2E);
  float largest[2] = {segment_[0].max, segment_[1].max};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int32_t row = i / 4 * 8 + lane_ % 4 * 2 + i % 2;
    scores[i] = row < num_rows ? __fmul_rn(scores[i], scale) : -INFINITY;
    largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], scores[i]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t head = head_of(half);
    float max = fmaxf(largest[half], __shfl_xor_sync(kAllLanes, largest[half], 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float* pair = &scores[4 * v + 2 * half];
      const __nv_bfloat162 weights =
          __floats2bfloat162_rn(exp2f(pair[0] - max), exp2f(pair[1] - max));
      reinterpret_cast<__nv_bfloat162*>(matrix_vector(shared_.weights, head, v))[lane_ % 4] =
          weights;
      sum = __fadd_rn(sum, __fadd_rn(__low2float(weights), __high2float(weights)));
    }
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 1));
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 2));
    const float rescale = exp2f(segment_[half].max - max);
    segment_[half] = {max, __fadd_rn(__fmul_rn(segment_[half].sum, rescale), sum)};
    if (lane_ % 4 == 0) shared_.states->rescale[head] = rescale;
  }
}

template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::rescale_sums() {
  const float factors[2] = {shared_.states->rescale[head_of(0)],
                            shared_.states->rescale[head_of(1)]};
  // Most tiles: no new largest score. Warps stay together: products follow.
  if (__all_sync(kAllLanes, factors[0] == 1.0f && factors[1] == 1.0f)) return;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sums_[i] *= factors[i / 2 % 2];
}

// Adds tile n to the warpgroup's columns of the weighted sums. Meanwhile, the table moves on.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::accumulate(int32_t n) {
  rescale_sums();
  const int32_t first_column = loads() ? kColumns : 0;
  const auto weights = simt::operand_descriptor(shared_.weights, simt::kSwizzledAtomBytes);
  const auto rows = simt::operand_descriptor(tile(n) + first_column / 64 * kColumnBlockBytes,
                                             simt::kSwizzledAtomBytes, kColumnBlockBytes);
  simt::wgmma_fence(sums_);
#pragma unroll
  for (unsigned step = 0; step < kAttentionTileRows / 16; ++step) {
    simt::wgmma_bf16<simt::OperandLines::n>(
        sums_, simt::advance(weights, step * 32),
        simt::advance(rows, step * 2 * simt::kSwizzledAtomBytes), true);
  }
  simt::wgmma_commit_group();
  if (loads()) load_table(n + 2);
  __syncwarp();
  simt::wgmma_wait(sums_);
}

// ---- Segments -----------------------------------------------------------------------------------

template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::start_segment() {
  segment_[0] = segment_[1] = {-INFINITY, 0.0f};
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sums_[i] = 0.0f;
}

// After tile n, the last of its segment: the weighted sums leave the registers.
template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::finish_segment(int32_t n) {
  const int32_t segment = n / kTilesPerSegment;
  const SegmentPlace place = block_.place_of(segment, num_rows_of(n + 1) == 0);
  if (!loads() && lane_ % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t head = head_of(half);
      const MergeFactors factors =
          block_.close_segment(head, segment_[half], segment, place, run_[half]);
      shared_.states->factors[0][head] = factors.earlier;
      shared_.states->factors[1][head] = factors.next;
      shared_.states->factors[2][head] = factors.inverse;
    }
  }
  __syncthreads();
  store_sums(segment, place);
}

template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::store_sums(
    int32_t segment, const SegmentPlace& place) const {
  const auto& factors_of = shared_.states->factors;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t head = head_of(half);
    if (head >= block_.num_heads()) continue;
    const MergeFactors factors{factors_of[0][head], factors_of[1][head], factors_of[2][head]};
    float* result = block_.result_of(head, segment) + (loads() ? kColumns : 0) + lane_ % 4 * 2;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const float* sums = &sums_[4 * j + 2 * half];
      auto* pair = reinterpret_cast<float2*>(result + j * 8);
      float2 before{};
      if (!place.is_first) before = *pair;
      *pair = float2{merged(&before.x, sums[0], factors, place),
                     merged(&before.y, sums[1], factors, place)};
    }
  }
}

template <int kLatentDim, bool kFp8>
__device__ __forceinline__ void WarpgroupAttention<kLatentDim, kFp8>::run() {
  const int32_t first = block_.first_segment() * kTilesPerSegment;
  if (loads()) {
    load_table(first);
    load_table(first + 1);
  }
  __syncthreads();
  if (loads()) load_rows(first);
  simt::cp_async_commit_group();
  load_query();
  int32_t n = first;
  for (;; ++n) {
    simt::cp_async_wait_group<0>();
    simt::fence_before_wgmma();
    __syncthreads();  // the tile is there, and the one before it done with
    const int32_t num_rows = num_rows_of(n);
    if (num_rows == 0) break;
    if (n % kTilesPerSegment == 0) start_segment();
    if constexpr (kFp8) {
      decode_rows(n);
      simt::fence_before_wgmma();
      __syncthreads();
    }
    if (loads()) {
      fill_slots(n);
      load_rows(n + 1);
      simt::cp_async_commit_group();
    } else {
      float scores[32];
      score(n, scores);
      weigh(num_rows, scores);
      simt::fence_before_wgmma();
    }
    __syncthreads();  // the weights are there
    accumulate(n);
    if ((n + 1) % kTilesPerSegment == 0 || num_rows_of(n + 1) == 0) finish_segment(n);
  }
  if (n == first && block_.merges_itself()) block_.store_zeros();
}

}  // namespace dhs::cuda
