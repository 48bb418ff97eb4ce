// What both attention kernels share: the table of a segment's rows, and how segments are merged.
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/sparse_attention/attention_config.h"

namespace dhs::cuda {

// Segments' results that wait for the second kernel: [rows, segments, heads, latent_dim] of
// weighted sums, and {max, sum} of each. Null data: a block has all segments of its row and needs
// none.
struct Partials {
  float* sums = nullptr;
  float* stats = nullptr;
  int32_t num_segments = 0;
};

struct AttentionLaunch {
  SparseAttentionParams params;
  Partials partials;
  int64_t first_row = 0;  // of this launch
  int32_t heads_per_block = 0;
  int32_t segments_per_block = 0;
  int32_t ring_rows = 0;
};

// ---- Merging ------------------------------------------------------------------------------------

// Of the rows so far: the largest score, in powers of two, and the sum of 2^(score - max).
struct Softmax {
  float max = 0.0f;
  float sum = 0.0f;
};

// What a weighted sum over the earlier segments and one over the next are multiplied by.
struct MergeFactors {
  float earlier = 0.0f;
  float next = 0.0f;
  float inverse = 1.0f;  // 1 / sum of all weights, for the last one
};

struct SegmentPlace {
  bool is_first;  // nothing to merge with
  bool is_last;   // the result is final
};

// Rounded step by step: both kernels that merge must compute the same bits.
__device__ __forceinline__ MergeFactors merge_softmax(Softmax& earlier, const Softmax& next) {
  MergeFactors factors;
  const float max = fmaxf(earlier.max, next.max);
  factors.earlier = exp2f(earlier.max - max);
  factors.next = exp2f(next.max - max);
  earlier.sum = fmaf(earlier.sum, factors.earlier, __fmul_rn(next.sum, factors.next));
  earlier.max = max;
  return factors;
}
__device__ __forceinline__ float merge_sums(float earlier, float next,
                                            const MergeFactors& factors) {
  return fmaf(earlier, factors.earlier, __fmul_rn(next, factors.next));
}
__device__ __forceinline__ float inverse_of(float sum) { return __fdiv_rn(1.0f, sum); }

// The next value of an element of the result whose current value is *result.
__device__ __forceinline__ float merged(const float* result, float segment,
                                        const MergeFactors& factors, const SegmentPlace& place) {
  const float value = place.is_first ? segment : merge_sums(*result, segment, factors);
  return place.is_last ? __fmul_rn(value, factors.inverse) : value;
}

// ---- A block's work -----------------------------------------------------------------------------

// One query row, some of its heads, a run of its segments. All threads hold the same values.
class AttentionBlock {
 public:
  // Blocks of one row's heads are neighbours, so that they find its rows in the second level cache.
  __device__ AttentionBlock(const AttentionLaunch& launch, SegmentTable& table)
      : launch_(launch), table_(table) {
    const auto all_heads = static_cast<int32_t>(launch.params.out.sizes[1]);
    const int32_t head_blocks = (all_heads + launch.heads_per_block - 1) / launch.heads_per_block;
    const auto block = static_cast<int64_t>(blockIdx.x);
    row_ = launch.first_row + block / head_blocks;
    first_head_ = static_cast<int32_t>(block % head_blocks) * launch.heads_per_block;
    num_heads_ = min(all_heads - first_head_, launch.heads_per_block);
    first_segment_ = static_cast<int32_t>(blockIdx.y) * launch.segments_per_block;
  }

  __device__ const AttentionLaunch& launch() const { return launch_; }
  __device__ const SparseAttentionParams& params() const { return launch_.params; }
  __device__ const SegmentTable& table() const { return table_; }
  __device__ int64_t row() const { return row_; }
  __device__ int32_t first_head() const { return first_head_; }
  __device__ int32_t num_heads() const { return num_heads_; }  // that exist
  __device__ int32_t first_segment() const { return first_segment_; }
  __device__ bool merges_itself() const { return launch_.partials.sums == nullptr; }

  __device__ void load_segment(int32_t segment);
  __device__ bool fills_slots() const {
    return launch_.params.fetch.miss_of.data != nullptr && first_head_ == 0;
  }
  __device__ void fill_slot(int32_t segment, int32_t i, const std::byte* stored) const;
  __device__ MergeFactors close_segment(int32_t head, const Softmax& segment, int32_t number,
                                        const SegmentPlace& place, Softmax& run) const;
  __device__ float* result_of(int32_t head, int32_t segment) const;
  __device__ SegmentPlace place_of(int32_t segment, bool is_last_of_row) const;
  __device__ void store_zeros() const;

 private:
  __device__ int32_t slot_at(int32_t segment, int64_t entry) const {
    const auto& slots = launch_.params.slots;
    const bool is_mine = segment < first_segment_ + launch_.segments_per_block;
    return is_mine && entry < slots.sizes[1] ? slots(row_, entry) : -1;
  }
  // Index of a segment, or of a head's softmax over it, among the partial results.
  __device__ int64_t partial_idx(int32_t head, int32_t segment) const {
    const int64_t unit = (row_ - launch_.first_row) * launch_.partials.num_segments + segment;
    return unit * launch_.params.out.sizes[1] + first_head_ + head;
  }

  const AttentionLaunch& launch_;
  SegmentTable& table_;
  int64_t row_;
  int32_t first_head_;
  int32_t num_heads_;
  int32_t first_segment_;
};

// Fills the table's half for `segment`; empty beyond the block's run. One thread per row. Complete
// after the caller's next barrier.
__device__ inline void AttentionBlock::load_segment(int32_t segment) {
  const auto i = static_cast<int32_t>(threadIdx.x);
  const int64_t entry = int64_t{segment} * kAttentionSegmentRows + i;
  const int32_t half = segment % 2;
  const bool is_valid = slot_at(segment, entry) >= 0;
  const bool is_last = i == kAttentionSegmentRows - 1 || slot_at(segment, entry + 1) < 0;
  table_.sources[half][i] = is_valid ? selected_row(params(), row_, entry) : nullptr;
  // The first block of heads fills the slots for all of them.
  table_.fills[half][i] = is_valid && fills_slots() && fills_slot(params(), row_, entry);
  if (is_valid && is_last) table_.num_rows[half] = i + 1;
  if (!is_valid && i == 0) table_.num_rows[half] = 0;
}

// Writes row i of the segment to its slot if that is asked of it. `stored` is the row in shared
// memory. One warp.
__device__ __forceinline__ void AttentionBlock::fill_slot(int32_t segment, int32_t i,
                                                          const std::byte* stored) const {
  if (table_.fills[segment % 2][i] == 0) return;
  const int64_t entry = int64_t{segment} * kAttentionSegmentRows + i;
  std::byte* slot = params().records.at(params().slots(row_, entry)) + params().row_offset;
  for (auto v = static_cast<int32_t>(threadIdx.x % 32); v < params().layout.row_bytes() / 16;
       v += 32) {
    reinterpret_cast<uint4*>(slot)[v] = reinterpret_cast<const uint4*>(stored)[v];
  }
}

// Head `head` of the block has its softmax over segment `number`: leaves it for the second kernel,
// or merges it with the earlier segments of the run. Called by one thread per head.
__device__ inline MergeFactors AttentionBlock::close_segment(int32_t head, const Softmax& segment,
                                                             int32_t number,
                                                             const SegmentPlace& place,
                                                             Softmax& run) const {
  MergeFactors factors;
  if (merges_itself()) {
    if (place.is_first) {
      run = segment;
    } else {
      factors = merge_softmax(run, segment);
    }
    factors.inverse = inverse_of(run.sum);
  } else if (head < num_heads_) {
    float* stats = launch_.partials.stats + 2 * partial_idx(head, number);
    stats[0] = segment.max;
    stats[1] = segment.sum;
  }
  return factors;
}

// Where the block's weighted sum of head `head` over `segment` goes.
__device__ __forceinline__ float* AttentionBlock::result_of(int32_t head, int32_t segment) const {
  const auto& out = params().out;
  if (merges_itself()) {
    return out.data + row_ * out.strides[0] + (first_head_ + head) * out.strides[1];
  }
  return launch_.partials.sums + partial_idx(head, segment) * params().layout.latent_dim;
}

// A segment that is left to the second kernel is merged with nothing and not final.
__device__ __forceinline__ SegmentPlace AttentionBlock::place_of(int32_t segment,
                                                                 bool is_last_of_row) const {
  if (!merges_itself()) return {true, false};
  return {segment == first_segment_, is_last_of_row};
}

// A row without any slot gives zeros.
__device__ inline void AttentionBlock::store_zeros() const {
  for (int32_t head = 0; head < num_heads_; ++head) {
    float* out = result_of(head, 0);
    for (auto d = static_cast<int32_t>(threadIdx.x); d < params().layout.latent_dim;
         d += kAttentionThreads) {
      out[d] = 0.0f;
    }
  }
}

// ---- The second kernel --------------------------------------------------------------------------

inline constexpr int kMergeThreads = 128;
inline constexpr int kMergeColumns = 4;  // of one thread

// One block per row, head and kMergeThreads * kMergeColumns latents.
__global__ void merge_segments_kernel(const __grid_constant__ AttentionLaunch launch) {
  const auto& params = launch.params;
  const int64_t num_heads = params.out.sizes[1];
  const int64_t latent_dim = params.layout.latent_dim;
  const int64_t row = static_cast<int64_t>(blockIdx.x) / num_heads;
  const int64_t head = static_cast<int64_t>(blockIdx.x) % num_heads;
  const int64_t first = int64_t{blockIdx.y} * kMergeThreads * kMergeColumns + threadIdx.x;
  Softmax run;
  float values[kMergeColumns] = {};
  for (int32_t s = 0; s < launch.partials.num_segments; ++s) {
    if (params.slots(launch.first_row + row, int64_t{s} * kAttentionSegmentRows) < 0) break;
    const int64_t unit = (row * launch.partials.num_segments + s) * num_heads + head;
    const Softmax segment{launch.partials.stats[2 * unit], launch.partials.stats[2 * unit + 1]};
    const float* sums = launch.partials.sums + unit * latent_dim;
    MergeFactors factors;
    if (s == 0) {
      run = segment;
    } else {
      factors = merge_softmax(run, segment);
    }
#pragma unroll
    for (int j = 0; j < kMergeColumns; ++j) {
      const int64_t d = first + j * kMergeThreads;
      if (d < latent_dim) values[j] = s == 0 ? sums[d] : merge_sums(values[j], sums[d], factors);
    }
  }
  const float inverse = run.sum == 0.0f ? 0.0f : inverse_of(run.sum);
  float* out = &params.out(launch.first_row + row, head, 0);
#pragma unroll
  for (int j = 0; j < kMergeColumns; ++j) {
    const int64_t d = first + j * kMergeThreads;
    if (d < latent_dim) out[d] = __fmul_rn(values[j], inverse);
  }
}

}  // namespace dhs::cuda
