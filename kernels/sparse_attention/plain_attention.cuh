// Attention in f32 arithmetic: f32 rows, and row dims that tensor cores do not take. Correct and
// simple; not the fast path. See sparse_attention.cu.
#pragma once

#include "kernels/kv_row/kv_row_device.cuh"
#include "kernels/sparse_attention/attention_segments.cuh"

namespace dhs::cuda {

static_assert(kPlainHeads == kAttentionThreads / 32 && kPlainTileRows == 32);
inline constexpr int kPlainColumns = kMaxPlainLatent / kAttentionThreads;  // of one thread

// Shared memory of a block.
struct PlainShared {
  SegmentTable* table;
  std::byte* rows;        // [kPlainTileRows] as stored, plain_row_pitch() apart
  float* q;               // [kPlainHeads, latent_dim + rope_dim]
  float* weights;         // [kPlainHeads, kPlainTileRows]
  float* rescale;         // [kPlainHeads]
  MergeFactors* factors;  // [kPlainHeads]

  __device__ PlainShared(std::byte* base, const RowLayout& layout) {
    table = reinterpret_cast<SegmentTable*>(base);
    rows = base += row_aligned(sizeof(SegmentTable));
    q = reinterpret_cast<float*>(base += kPlainTileRows * plain_row_pitch(layout));
    const int64_t dims = layout.latent_dim + layout.rope_dim;
    weights = reinterpret_cast<float*>(base + row_aligned(kPlainHeads * dims * 4));
    rescale = weights + kPlainHeads * kPlainTileRows;
    factors = reinterpret_cast<MergeFactors*>(rescale + kPlainHeads);
  }
};

class PlainAttention {
 public:
  __device__ PlainAttention(const AttentionLaunch& launch, std::byte* shared)
      : shared_(shared, launch.params.layout),
        block_(launch),
        layout_(launch.params.layout),
        lane_(static_cast<int32_t>(threadIdx.x % 32)),
        warp_(static_cast<int32_t>(threadIdx.x / 32)) {}

  __device__ void run();

 private:
  __device__ void load_segment(int32_t segment) const {
    load_row_table(block_, segment, static_cast<int32_t>(threadIdx.x), *shared_.table);
  }
  __device__ void load_query() const;
  __device__ void load_rows(int32_t segment, int32_t first, int32_t num_rows) const;
  __device__ float score(int32_t num_rows) const;
  __device__ void update_softmax(float score);
  __device__ void accumulate(int32_t num_rows);
  __device__ void run_segment(int32_t segment, int32_t num_rows);
  __device__ void finish_segment(int32_t segment, bool is_last_of_row);

  PlainShared shared_;
  AttentionBlock block_;
  RowLayout layout_;
  int32_t lane_;
  int32_t warp_;
  Softmax segment_, run_;  // of the warp's head, in every lane
  float sums_[kPlainHeads][kPlainColumns];
};

// Zeros for heads that do not exist.
__device__ inline void PlainAttention::load_query() const {
  const auto& params = block_.params();
  const int32_t dims = layout_.latent_dim + layout_.rope_dim;
  const bool exists = warp_ < block_.num_heads();
  const int64_t head = block_.first_head() + warp_;
  for (int32_t d = lane_; d < dims; d += 32) {
    float value = 0.0f;
    if (exists) {
      value = d < layout_.latent_dim ? params.q_latent(block_.row(), head, d)
                                     : params.q_rope(block_.row(), head, d - layout_.latent_dim);
    }
    shared_.q[warp_ * dims + d] = value;
  }
}

// A warp per row.
__device__ inline void PlainAttention::load_rows(int32_t segment, int32_t first,
                                                 int32_t num_rows) const {
  const auto num_vectors = static_cast<int32_t>(layout_.row_bytes() / 16);
  for (int32_t i = warp_; i < num_rows; i += kPlainHeads) {
    std::byte* stored = shared_.rows + i * plain_row_pitch(layout_);
    const std::byte* source = shared_.table->sources[segment % 2][first + i];
    for (int32_t v = lane_; v < num_vectors; v += 32) {
      reinterpret_cast<uint4*>(stored)[v] = reinterpret_cast<const uint4*>(source)[v];
    }
    __syncwarp();
    if (shared_.table->fills[segment % 2][first + i] == 0) continue;
    block_.fill_slot(int64_t{segment} * kAttentionSegmentRows + first + i, stored);
  }
}

// Of the warp's head and the lane's row, in powers of two.
__device__ inline float PlainAttention::score(int32_t num_rows) const {
  if (lane_ >= num_rows) return -INFINITY;
  const std::byte* row = shared_.rows + lane_ * plain_row_pitch(layout_);
  const float* q = shared_.q + warp_ * (layout_.latent_dim + layout_.rope_dim);
  float sum = 0.0f;
  for (int32_t d = 0; d < layout_.latent_dim; ++d) {
    sum = fmaf(q[d], decode_latent(layout_, row, d), sum);
  }
  for (int32_t d = 0; d < layout_.rope_dim; ++d) {
    sum = fmaf(q[layout_.latent_dim + d], decode_rope(layout_, row, d), sum);
  }
  constexpr float kLog2E = 1.44269504088896341f;
  return __fmul_rn(sum, __fmul_rn(block_.params().softmax_scale, kLog2E));
}

// Of the warp's head: the tile's weights, and what earlier sums are multiplied by.
__device__ inline void PlainAttention::update_softmax(float score) {
  float largest = score;
  for (int bits = 16; bits > 0; bits /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, bits));
  }
  largest = fmaxf(largest, segment_.max);
  const float rescale = exp2f(segment_.max - largest);
  const float weight = exp2f(score - largest);
  float sum = weight;
  for (int bits = 16; bits > 0; bits /= 2) {
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, bits));
  }
  segment_ = {largest, fmaf(segment_.sum, rescale, sum)};
  shared_.weights[warp_ * kPlainTileRows + lane_] = weight;
  if (lane_ == 0) shared_.rescale[warp_] = rescale;
}

// A thread takes every kAttentionThreads-th latent, of all heads.
__device__ inline void PlainAttention::accumulate(int32_t num_rows) {
#pragma unroll
  for (int j = 0; j < kPlainColumns; ++j) {
    const auto d = static_cast<int32_t>(threadIdx.x) + j * kAttentionThreads;
    if (d >= layout_.latent_dim) continue;
#pragma unroll
    for (int head = 0; head < kPlainHeads; ++head) sums_[head][j] *= shared_.rescale[head];
    for (int32_t i = 0; i < num_rows; ++i) {
      const float value = decode_latent(layout_, shared_.rows + i * plain_row_pitch(layout_), d);
#pragma unroll
      for (int head = 0; head < kPlainHeads; ++head) {
        sums_[head][j] = fmaf(shared_.weights[head * kPlainTileRows + i], value, sums_[head][j]);
      }
    }
  }
}

__device__ inline void PlainAttention::run_segment(int32_t segment, int32_t num_rows) {
  segment_ = {-INFINITY, 0.0f};
#pragma unroll
  for (int i = 0; i < kPlainHeads * kPlainColumns; ++i) {
    sums_[i / kPlainColumns][i % kPlainColumns] = 0.0f;
  }
  for (int32_t first = 0; first < num_rows; first += kPlainTileRows) {
    const int32_t tile_rows = min(num_rows - first, kPlainTileRows);
    load_rows(segment, first, tile_rows);
    __syncthreads();
    update_softmax(score(tile_rows));
    __syncthreads();
    accumulate(tile_rows);
    __syncthreads();
  }
}

__device__ inline void PlainAttention::finish_segment(int32_t segment, bool is_last_of_row) {
  const SegmentPlace place = block_.place_of(segment, is_last_of_row);
  if (lane_ == 0) {
    shared_.factors[warp_] = block_.close_segment(warp_, segment_, segment, place, run_);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPlainHeads * kPlainColumns; ++i) {
    const int head = i / kPlainColumns, j = i % kPlainColumns;
    const auto d = static_cast<int32_t>(threadIdx.x) + j * kAttentionThreads;
    if (head >= block_.num_heads() || d >= layout_.latent_dim) continue;
    float* result = block_.result_of(head, segment) + d;
    *result = merged(result, sums_[head][j], shared_.factors[head], place);
  }
}

__device__ inline void PlainAttention::run() {
  load_query();
  const int32_t first = block_.first_segment();
  const int32_t end = first + block_.launch().segments_per_block;
  load_segment(first);
  __syncthreads();
  const bool is_empty = shared_.table->num_rows[first % 2] == 0;
  for (int32_t segment = first; segment < end; ++segment) {
    const int32_t num_rows = shared_.table->num_rows[segment % 2];
    if (num_rows == 0) break;
    load_segment(segment + 1);
    run_segment(segment, num_rows);  // its barriers complete the table
    finish_segment(segment, shared_.table->num_rows[(segment + 1) % 2] == 0);
  }
  if (is_empty && block_.merges_itself()) block_.store_zeros();
}

}  // namespace dhs::cuda
