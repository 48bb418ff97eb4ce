// What the attention kernels share: a block's work, the table of its rows, and how segments are
// merged.
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

using AttentionEntry = void (*)(AttentionLaunch);

// kWarpgroup's kernel for these rows, on the current device: one of compute capability 9.0.
// Precondition: fits_warpgroups(layout).
AttentionEntry warpgroup_attention(const RowLayout& layout);

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

// Rounded step by step: all kernels that merge must compute the same bits.
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
  __device__ explicit AttentionBlock(const AttentionLaunch& launch) : launch_(launch) {
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
  __device__ int64_t row() const { return row_; }
  __device__ int32_t first_head() const { return first_head_; }
  __device__ int32_t num_heads() const { return num_heads_; }  // that exist
  __device__ int32_t first_segment() const { return first_segment_; }
  __device__ bool merges_itself() const { return launch_.partials.sums == nullptr; }

  // The slot of entry `entry` of the row's selection; -1 beyond it, and beyond the block's run.
  __device__ int32_t slot_at(int64_t entry) const {
    const auto& slots = launch_.params.slots;
    const int64_t end_segment = first_segment_ + launch_.segments_per_block;
    const bool is_mine = entry < end_segment * kAttentionSegmentRows;
    return is_mine && entry < slots.sizes[1] ? slots(row_, entry) : -1;
  }
  __device__ bool fills_slots() const {
    return launch_.params.fetch.miss_of.data != nullptr && first_head_ == 0;
  }
  // The row that entry `entry` is to fill.
  __device__ std::byte* slot_row(int64_t entry) const {
    return params().records.at(params().slots(row_, entry)) + params().row_offset;
  }
  __device__ void fill_slot(int64_t entry, const std::byte* stored) const;
  __device__ MergeFactors close_segment(int32_t head, const Softmax& segment, int32_t number,
                                        const SegmentPlace& place, Softmax& run) const;
  __device__ float* result_of(int32_t head, int32_t segment) const;
  __device__ SegmentPlace place_of(int32_t segment, bool is_last_of_row) const;
  __device__ void store_zeros() const;

 private:
  // Index of a segment, or of a head's softmax over it, among the partial results.
  __device__ int64_t partial_idx(int32_t head, int32_t segment) const {
    const int64_t unit = (row_ - launch_.first_row) * launch_.partials.num_segments + segment;
    return unit * launch_.params.out.sizes[1] + first_head_ + head;
  }

  const AttentionLaunch& launch_;
  int64_t row_;
  int32_t first_head_;
  int32_t num_heads_;
  int32_t first_segment_;
};

// Row i of the table's half for part `part` of the selection, kRows entries; empty beyond the
// block's run. One thread per row. Complete after the caller's next barrier.
template <int kRows>
__device__ __forceinline__ void load_row_table(const AttentionBlock& block, int32_t part, int32_t i,
                                               RowTable<kRows>& table) {
  const int64_t entry = int64_t{part} * kRows + i;
  const int32_t half = part % 2;
  const bool is_valid = block.slot_at(entry) >= 0;
  const bool is_last = i == kRows - 1 || block.slot_at(entry + 1) < 0;
  const auto& params = block.params();
  table.sources[half][i] = is_valid ? selected_row(params, block.row(), entry) : nullptr;
  // The first block of heads fills the slots for all of them.
  table.fills[half][i] = is_valid && block.fills_slots() && fills_slot(params, block.row(), entry);
  if (is_valid && is_last) table.num_rows[half] = i + 1;
  if (!is_valid && i == 0) table.num_rows[half] = 0;
}

// Writes a row, which lies at `stored` in shared memory, to its slot. One warp.
__device__ __forceinline__ void AttentionBlock::fill_slot(int64_t entry,
                                                          const std::byte* stored) const {
  auto* slot = reinterpret_cast<uint4*>(slot_row(entry));
  for (auto v = static_cast<int32_t>(threadIdx.x % 32); v < params().layout.row_bytes() / 16;
       v += 32) {
    slot[v] = reinterpret_cast<const uint4*>(stored)[v];
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

}  // namespace dhs::cuda
