// Attention over bf16 and fp8 rows by mma.sync. See sparse_attention.cu.
#pragma once

#include "kernels/cuda/cp_async.h"
#include "kernels/cuda/ldmatrix.h"
#include "kernels/cuda/mma.h"
#include "kernels/kv_row/kv_row_device.cuh"
#include "kernels/sparse_attention/attention_segments.cuh"

namespace dhs::cuda {

inline constexpr int kWarps = kAttentionThreads / 32;
inline constexpr int kTilesPerSegment = kAttentionSegmentRows / kAttentionTileRows;
inline constexpr int kRowGroups = kAttentionTileRows / 16;  // of a tile: an mma takes 16 rows
inline constexpr int kLatentBlocks =
    kMaxTensorCoreLatent / 16 / kWarps;  // 16 latents each, of a warp

// Shared memory of a block. Pitches in elements.
template <int kHeads>
struct TensorCoreShared {
  Bf16* q;        // [kHeads, pitch]
  Bf16* weights;  // [kHeads, kWeightsPitch / 2]
  HeadStates<kHeads>* states;
  SegmentTable* table;
  std::byte* stored;  // fp8 only: the next tile's rows as stored
  Bf16* ring;  // [ring_rows, pitch] row i of tile n is at (n * kAttentionTileRows + i) % rows
  int32_t pitch;

  __device__ TensorCoreShared(std::byte* base, const RowLayout& layout) {
    const int64_t row_bytes = attention_row_pitch(layout);
    q = reinterpret_cast<Bf16*>(base);
    weights = reinterpret_cast<Bf16*>(base += kHeads * row_bytes);
    states = reinterpret_cast<HeadStates<kHeads>*>(base += kHeads * kWeightsPitch);
    table = reinterpret_cast<SegmentTable*>(base += sizeof(HeadStates<kHeads>));
    stored = base += row_aligned(sizeof(SegmentTable));
    if (layout.format == RowFormat::kFp8) base += kAttentionTileRows * layout.row_bytes();
    ring = reinterpret_cast<Bf16*>(base);
    pitch = static_cast<int32_t>(row_bytes / 2);
  }
};

template <int kHeadTiles, bool kFp8>
class TensorCoreAttention {
 public:
  __device__ TensorCoreAttention(const AttentionLaunch& launch, std::byte* shared)
      : shared_(shared, launch.params.layout),
        block_(launch),
        layout_(launch.params.layout),
        lane_(static_cast<int32_t>(threadIdx.x % 32)),
        warp_(static_cast<int32_t>(threadIdx.x / 32)) {}

  __device__ void run();

 private:
  static constexpr int kHeads = kHeadTiles * 16;
  // Scores: a warp takes one tile of heads and this many groups of rows.
  static constexpr int kGroups = kHeadTiles == 4 ? 2 : 1;
  static constexpr float kLog2E = 1.44269504088896341f;

  // Two chains of sums, over the even and the odd steps of 16 dims: half the latency.
  struct Scores {
    float even[kGroups][2][4];
    float odd[kGroups][2][4];
  };

  // Where this lane's parts of the operands are, at dim 0.
  struct ScoreOperands {
    const Bf16* q;
    const Bf16* rows[kGroups];
  };
  __device__ static void score_step(const ScoreOperands& operands, int32_t step,
                                    float (&sums)[kGroups][2][4]);

  // Tile n of the run.
  __device__ int32_t segment_of(int32_t n) const {
    return block_.first_segment() + n / kTilesPerSegment;
  }
  __device__ static int32_t first_row_of(int32_t n) {
    return n % kTilesPerSegment * kAttentionTileRows;
  }
  __device__ int32_t num_rows_of(int32_t n) const {
    const int32_t left = shared_.table->num_rows[segment_of(n) % 2] - first_row_of(n);
    return max(0, min(left, kAttentionTileRows));
  }
  __device__ Bf16* ring_row(int32_t n, int32_t i) const {
    const int32_t ring_rows = block_.launch().ring_rows;
    return shared_.ring +
           (n * kAttentionTileRows + i) % ring_rows * static_cast<int64_t>(shared_.pitch);
  }
  // Of the warp: which tile of heads and which first group of rows it scores.
  __device__ int32_t head_tile() const { return warp_ % kHeadTiles; }
  __device__ int32_t first_group() const { return warp_ / kHeadTiles * kGroups; }

  __device__ void load_segment(int32_t segment) const {
    load_row_table(block_, segment, static_cast<int32_t>(threadIdx.x), *shared_.table);
  }
  __device__ void load_query() const;
  __device__ void load_rows(int32_t n, int32_t first, int32_t end) const;
  __device__ void fill_slots(int32_t n) const;
  __device__ void decode_rows(int32_t n) const;
  __device__ void score(int32_t n, Scores& scores) const;
  __device__ void finish_scores(int32_t n, Scores& scores) const;
  __device__ void update_max(int32_t n);
  __device__ void store_weights(int32_t n, const Scores& scores) const;
  __device__ void update_sum();
  __device__ void accumulate(int32_t n);
  __device__ void accumulate_group(int32_t n, int32_t group);
  __device__ void rescale_sums();
  __device__ void finish_segment(int32_t n);
  __device__ void start_segment(int32_t n);

  TensorCoreShared<kHeads> shared_;
  AttentionBlock block_;
  RowLayout layout_;
  int32_t lane_;
  int32_t warp_;
  // Thread h keeps the softmax of head h: over the segment, and over the run before it.
  Softmax segment_, run_;
  // Weighted sums: of 16 heads each, blocks warp + 8j of 16 latents, two mma columns.
  float sums_[kHeadTiles][kLatentBlocks][2][4];
};

// q, rounded to bf16; zeros for heads that do not exist.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::load_query() const {
  const auto& params = block_.params();
  const int32_t latent_dim = layout_.latent_dim;
  const int32_t dims = latent_dim + layout_.rope_dim;
  for (int32_t head = warp_; head < kHeads; head += kWarps) {
    Bf16* q = shared_.q + head * static_cast<int64_t>(shared_.pitch);
    const bool exists = head < block_.num_heads();
    const int64_t h = block_.first_head() + (exists ? head : 0);
    const float* latent = params.q_latent.data + block_.row() * params.q_latent.strides[0] +
                          h * params.q_latent.strides[1];
    const float* rope =
        params.q_rope.data + block_.row() * params.q_rope.strides[0] + h * params.q_rope.strides[1];
    for (int32_t d = lane_; d < dims; d += 32) {
      const float value = d < latent_dim ? latent[d] : rope[d - latent_dim];
      q[d] = exists ? encode_bf16(value) : Bf16{0};
    }
  }
}

// Starts copying rows [first, end) of tile n, a warp per row: into the ring, or as stored. Rows
// that do not exist become zeros as far as an mma reads them.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::load_rows(
    int32_t n, int32_t first, int32_t end) const {
  const int32_t num_rows = num_rows_of(n);
  const auto num_vectors = static_cast<int32_t>(layout_.row_bytes() / 16);
  const std::byte* const* sources = shared_.table->sources[segment_of(n) % 2] + first_row_of(n);
  for (int32_t i = first + warp_; i < min(end, (num_rows + 15) / 16 * 16); i += kWarps) {
    auto* to = kFp8 ? reinterpret_cast<uint4*>(shared_.stored + i * layout_.row_bytes())
                    : reinterpret_cast<uint4*>(ring_row(n, i));
    const auto* from = i < num_rows ? reinterpret_cast<const uint4*>(sources[i]) : nullptr;
    for (int32_t v = lane_; v < num_vectors; v += 32) {
      if (from != nullptr) {
        simt::cp_async_16(to + v, from + v);
      } else if (!kFp8) {
        to[v] = uint4{0, 0, 0, 0};
      }
    }
  }
}

template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::fill_slots(int32_t n) const {
  if (!block_.fills_slots()) return;
  const int32_t first = first_row_of(n), num_rows = num_rows_of(n);
  for (int32_t i = warp_; i < num_rows; i += kWarps) {
    if (shared_.table->fills[segment_of(n) % 2][first + i] == 0) continue;
    block_.fill_slot(int64_t{segment_of(n)} * kAttentionSegmentRows + first + i,
                     kFp8 ? shared_.stored + i * layout_.row_bytes()
                          : reinterpret_cast<const std::byte*>(ring_row(n, i)));
  }
}

// fp8: the stored rows of tile n -> ring, a warp per row.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::decode_rows(
    int32_t n) const {
  const int32_t num_rows = num_rows_of(n);
  for (int32_t i = warp_; i < (num_rows + 15) / 16 * 16; i += kWarps) {
    const std::byte* from = shared_.stored + i * layout_.row_bytes();
    auto* to = reinterpret_cast<uint4*>(ring_row(n, i));
    for (int32_t v = lane_; v < (layout_.latent_dim + layout_.rope_dim) / 8; v += 32) {
      to[v] = i < num_rows ? decode_fp8_vector(layout_, from, v) : uint4{0, 0, 0, 0};
    }
  }
}

// Adds dims [16 * step, 16 * step + 16) to the warp's scores.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::score_step(
    const ScoreOperands& operands, int32_t step, float (&sums)[kGroups][2][4]) {
  uint32_t q[4];
  simt::ldmatrix_x4(q, operands.q + step * 16);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    uint32_t rows[4];  // of 8 rows: dims 0..7 and 8..15, then the same of the next 8 rows
    simt::ldmatrix_x4(rows, operands.rows[g] + step * 16);
    simt::mma_m16n8k16_bf16(sums[g][0], q, {rows[0], rows[1]});
    simt::mma_m16n8k16_bf16(sums[g][1], q, {rows[2], rows[3]});
  }
}

// Unscaled products of the warp's heads and rows, in two halves.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::score(int32_t n,
                                                                             Scores& scores) const {
#pragma unroll
  for (int i = 0; i < kGroups * 8; ++i) {
    scores.even[i / 8][i / 4 % 2][i % 4] = 0.0f;
    scores.odd[i / 8][i / 4 % 2][i % 4] = 0.0f;
  }
  const int32_t num_rows = num_rows_of(n);
  if (first_group() * 16 >= num_rows) return;
  ScoreOperands operands;
  operands.q =
      shared_.q + (head_tile() * 16 + lane_ % 16) * int64_t{shared_.pitch} + lane_ / 16 * 8;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    // A group beyond the last row scores the last one again: nobody looks at the result.
    const int32_t group = min(first_group() + g, (num_rows - 1) / 16);
    const int32_t row = group * 16 + lane_ / 16 * 8 + lane_ % 8;
    operands.rows[g] = ring_row(n, row) + lane_ / 8 % 2 * 8;
  }
  const int32_t num_steps = (layout_.latent_dim + layout_.rope_dim) / 16;
  for (int32_t step = 0; step + 1 < num_steps; step += 2) {
    score_step(operands, step, scores.even);
    score_step(operands, step + 1, scores.odd);
  }
  if (num_steps % 2 != 0) score_step(operands, num_steps - 1, scores.even);
}

// Scales the scores to powers of two (in `even`), and finds the largest of each head and group.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::finish_scores(
    int32_t n, Scores& scores) const {
  if (first_group() >= kRowGroups) return;
  const float scale = __fmul_rn(block_.params().softmax_scale, kLog2E);
  const int32_t num_rows = num_rows_of(n);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    float largest[2] = {-INFINITY, -INFINITY};  // of the two heads this lane has scores of
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& value = scores.even[g][i / 4][i % 4];
      const int32_t row = (first_group() + g) * 16 + i / 4 * 8 + lane_ % 4 * 2 + i % 2;
      value = row < num_rows ? __fmul_rn(__fadd_rn(value, scores.odd[g][i / 4][i % 4]), scale)
                             : -INFINITY;
      largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], value);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float value = largest[half];
      value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
      value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
      const int32_t head = head_tile() * 16 + half * 8 + lane_ / 4;
      if (lane_ % 4 == 0) shared_.states->max_of_rows[first_group() + g][head] = value;
    }
  }
}

// The largest score of a head after tile n.
template <int kHeads>
__device__ __forceinline__ float max_after(const HeadStates<kHeads>& states, int32_t n,
                                           int32_t head) {
  float largest = states.max[n % 2][head];
#pragma unroll
  for (int g = 0; g < kRowGroups; ++g) largest = fmaxf(largest, states.max_of_rows[g][head]);
  return largest;
}

// Thread h: head h.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::update_max(int32_t n) {
  const auto head = static_cast<int32_t>(threadIdx.x);
  if (head >= kHeads) return;
  HeadStates<kHeads>& states = *shared_.states;
  const float largest = max_after(states, n, head);
  states.rescale[head] = exp2f(segment_.max - largest);
  states.max[(n + 1) % 2][head] = largest;
  segment_.max = largest;
}

// Scores -> weights, rounded to bf16, and their sums over each group of rows.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::store_weights(
    int32_t n, const Scores& scores) const {
  if (first_group() >= kRowGroups) return;
  float largest[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    largest[half] = max_after(*shared_.states, n, head_tile() * 16 + half * 8 + lane_ / 4);
  }
#pragma unroll
  for (int i = 0; i < kGroups * 2; ++i) {
    const int g = i / 2, half = i % 2;
    const int32_t head = head_tile() * 16 + half * 8 + lane_ / 4;
    float sums[2];
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const float* pair = &scores.even[g][column][half * 2];
      const __nv_bfloat162 weights =
          __floats2bfloat162_rn(exp2f(pair[0] - largest[half]), exp2f(pair[1] - largest[half]));
      const int32_t row = (first_group() + g) * 16 + column * 8 + lane_ % 4 * 2;
      *reinterpret_cast<__nv_bfloat162*>(shared_.weights + head * (kWeightsPitch / 2) + row) =
          weights;
      sums[column] = __fadd_rn(__low2float(weights), __high2float(weights));
    }
    float sum = __fadd_rn(sums[0], sums[1]);
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 1));
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 2));
    if (lane_ % 4 == 0) shared_.states->sum_of_rows[first_group() + g][head] = sum;
  }
}

// Thread h: head h.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::update_sum() {
  const auto head = static_cast<int32_t>(threadIdx.x);
  if (head >= kHeads) return;
  const HeadStates<kHeads>& states = *shared_.states;
  segment_.sum = __fmul_rn(segment_.sum, states.rescale[head]);
#pragma unroll
  for (int g = 0; g < kRowGroups; ++g) {
    segment_.sum = __fadd_rn(segment_.sum, states.sum_of_rows[g][head]);
  }
}

template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::rescale_sums() {
#pragma unroll
  for (int tile = 0; tile < kHeadTiles; ++tile) {
    const float* rescale = shared_.states->rescale + tile * 16 + lane_ / 4;
    const float factors[2] = {rescale[0], rescale[8]};
    if (factors[0] == 1.0f && factors[1] == 1.0f) continue;  // most tiles: no new largest score
#pragma unroll
    for (int i = 0; i < kLatentBlocks * 8; ++i) {
      sums_[tile][i / 8][i / 4 % 2][i % 4] *= factors[i % 4 / 2];
    }
  }
}

// Adds 16 rows to the weighted sums.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::accumulate_group(
    int32_t n, int32_t group) {
  uint32_t weights[kHeadTiles][4];
#pragma unroll
  for (int tile = 0; tile < kHeadTiles; ++tile) {
    simt::ldmatrix_x4(weights[tile], shared_.weights +
                                         (tile * 16 + lane_ % 16) * (kWeightsPitch / 2) +
                                         group * 16 + lane_ / 16 * 8);
  }
  const Bf16* row = ring_row(n, group * 16 + lane_ % 16) + lane_ / 16 * 8;
#pragma unroll
  for (int j = 0; j < kLatentBlocks; ++j) {
    const int32_t latent = (warp_ + j * kWarps) * 16;
    if (latent >= layout_.latent_dim) continue;
    uint32_t rows[4];  // of 8 latents: rows 0..7 and 8..15, then the same of the next 8 latents
    simt::ldmatrix_x4_trans(rows, row + latent);
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile) {
      simt::mma_m16n8k16_bf16(sums_[tile][j][0], weights[tile], {rows[0], rows[1]});
      simt::mma_m16n8k16_bf16(sums_[tile][j][1], weights[tile], {rows[2], rows[3]});
    }
  }
}

template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::accumulate(int32_t n) {
  rescale_sums();
  for (int32_t group = 0; group * 16 < num_rows_of(n); ++group) accumulate_group(n, group);
}

// Before tile n, the first of its segment.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::start_segment(int32_t n) {
  segment_ = {-INFINITY, 0.0f};
  if (threadIdx.x < kHeads) shared_.states->max[n % 2][threadIdx.x] = segment_.max;
#pragma unroll
  for (int i = 0; i < kHeadTiles * kLatentBlocks * 8; ++i) {
    sums_[i / (kLatentBlocks * 8)][i / 8 % kLatentBlocks][i / 4 % 2][i % 4] = 0.0f;
  }
}

// After tile n, the last of its segment: the weighted sums leave the registers.
template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::finish_segment(int32_t n) {
  const int32_t segment = segment_of(n);
  const SegmentPlace place = block_.place_of(segment, num_rows_of(n + 1) == 0);
  // Factors of a head take the place of its partial maxima.
  auto& factors_of = shared_.states->max_of_rows;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < kHeads) {
    const MergeFactors factors = block_.close_segment(thread, segment_, segment, place, run_);
    factors_of[0][thread] = factors.earlier;
    factors_of[1][thread] = factors.next;
    factors_of[2][thread] = factors.inverse;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kHeadTiles * 2; ++i) {
    const int tile = i / 2, half = i % 2;
    const int32_t head = tile * 16 + half * 8 + lane_ / 4;
    if (head >= block_.num_heads()) continue;
    const MergeFactors factors{factors_of[0][head], factors_of[1][head], factors_of[2][head]};
    float* result = block_.result_of(head, segment) + lane_ % 4 * 2;
#pragma unroll
    for (int c = 0; c < kLatentBlocks * 2; ++c) {
      const int32_t latent = (warp_ + c / 2 * kWarps) * 16 + c % 2 * 8;
      if (latent >= layout_.latent_dim) continue;
      const float* sums = &sums_[tile][c / 2][c % 2][half * 2];
      auto* pair = reinterpret_cast<float2*>(result + latent);
      float2 before{};
      if (!place.is_first) before = *pair;
      *pair = float2{merged(&before.x, sums[0], factors, place),
                     merged(&before.y, sums[1], factors, place)};
    }
  }
}

template <int kHeadTiles, bool kFp8>
__device__ __forceinline__ void TensorCoreAttention<kHeadTiles, kFp8>::run() {
  // What is prefetched while a tile is computed, and what only after it: there the ring is full.
  const int32_t early_rows =
      kFp8 ? kAttentionTileRows : block_.launch().ring_rows - kAttentionTileRows;
  load_segment(block_.first_segment());
  __syncthreads();
  load_rows(0, 0, kAttentionTileRows);
  simt::cp_async_commit_group();
  load_query();
  int32_t n = 0;
  for (;; ++n) {
    simt::cp_async_wait_group<0>();
    __syncthreads();  // the tile is there, and the one before it done with
    const int32_t num_rows = num_rows_of(n);
    if (num_rows == 0) break;
    if (n % kTilesPerSegment == 0) {
      load_segment(segment_of(n) + 1);
      start_segment(n);
    }
    fill_slots(n);
    if constexpr (kFp8) {
      decode_rows(n);
      __syncthreads();
    }
    load_rows(n + 1, 0, early_rows);
    simt::cp_async_commit_group();

    Scores scores;
    score(n, scores);
    finish_scores(n, scores);
    __syncthreads();
    store_weights(n, scores);
    update_max(n);
    __syncthreads();
    update_sum();
    accumulate(n);
    if (early_rows < kAttentionTileRows) {
      __syncthreads();
      load_rows(n + 1, early_rows, kAttentionTileRows);
      simt::cp_async_commit_group();
    }
    if ((n + 1) % kTilesPerSegment == 0 || num_rows_of(n + 1) == 0) finish_segment(n);
  }
  if (n == 0 && block_.merges_itself()) block_.store_zeros();
}

}  // namespace dhs::cuda
