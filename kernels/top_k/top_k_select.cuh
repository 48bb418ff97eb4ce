// The ordered compaction of top_k on CUDA, and what one block does with a whole row.
#pragma once

#include "kernels/top_k/top_k_device.cuh"

namespace dhs::cuda {

// The scores of a tile that this lane looks at: every 32nd of its warp's 128 in order.
struct TopKTileScores {
  float score[kTopKScoresPerLane];

  __device__ static int64_t position(int64_t first, int j) {
    return first + threadIdx.x / 32 * (32 * kTopKScoresPerLane) + j * 32 + threadIdx.x % 32;
  }
  __device__ void load(const float* scores, int64_t first, int64_t end) {
    for (int j = 0; j < kTopKScoresPerLane; ++j) {
      const int64_t s = position(first, j);
      score[j] = s < end ? scores[s] : 0.0f;
    }
  }
};

// Writes the positions of a segment whose key is above the k-th largest, and the first `remaining`
// of the row's ties with it, in order. `rank` is the progress of all passes.
__device__ inline void write_selection(const float* scores, TopKSegment segment, TopKProgress rank,
                                       int32_t* selection, TopKShared& shared) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t lower_lanes = (1u << lane) - 1;
  uint32_t above_before = rank.above_before;
  uint32_t ties_before = rank.ties_before;
  int buffer = 0;
  TopKTileScores tile;
  tile.load(scores, segment.begin, segment.end);
  for (int64_t first = segment.begin; first < segment.end; first += kTopKTile) {
    uint32_t above[kTopKScoresPerLane], ties[kTopKScoresPerLane];
    uint32_t num_above = 0, num_ties = 0;
    for (int j = 0; j < kTopKScoresPerLane; ++j) {
      const bool valid = TopKTileScores::position(first, j) < segment.end;
      const uint32_t key = order_key(tile.score[j]);
      above[j] = __ballot_sync(kFullWarp, valid && key > rank.prefix);
      ties[j] = __ballot_sync(kFullWarp, valid && key == rank.prefix);
      num_above += __popc(above[j]);
      num_ties += __popc(ties[j]);
    }
    tile.load(scores, first + kTopKTile, segment.end);  // on its way during the scan
    if (lane == 0) shared.warp_totals[buffer][warp] = count_pair(num_above, num_ties);
    __syncthreads();
    const WarpOffset offset = offset_of_warp(shared.warp_totals[buffer]);
    buffer ^= 1;  // the next barrier is between these reads and the next writes
    uint32_t own_above = above_before + static_cast<uint32_t>(offset.before);
    uint32_t own_ties = ties_before + static_cast<uint32_t>(offset.before >> 32);
    for (int j = 0; j < kTopKScoresPerLane; ++j) {
      const uint32_t a = own_above + __popc(above[j] & lower_lanes);
      const uint32_t t = own_ties + __popc(ties[j] & lower_lanes);
      const bool is_tie = (ties[j] >> lane & 1u) != 0 && t < rank.remaining;
      if ((above[j] >> lane & 1u) != 0 || is_tie) {
        selection[a + (t < rank.remaining ? t : rank.remaining)] =
            static_cast<int32_t>(TopKTileScores::position(first, j));
      }
      own_above += __popc(above[j]);
      own_ties += __popc(ties[j]);
    }
    above_before += static_cast<uint32_t>(offset.all);
    ties_before += static_cast<uint32_t>(offset.all >> 32);
  }
}

// All of a row that selects less than it sees, by one block. Precondition: 1 <= k < visible.
__device__ inline void select_of_row(const float* scores, int64_t visible, uint32_t k,
                                     int32_t* selection, TopKShared& shared) {
  TopKProgress progress{.remaining = k};
  clear_histogram(shared);
  for (int pass = 0; pass < kTopKPasses; ++pass) {
    count_digits(scores, {0, visible}, pass, progress.prefix, shared);
    const uint2 counts = take_counts(shared);
    progress = find_digit(progress, pass, counts.x, counts.y, shared);
  }
  write_selection(scores, {0, visible}, progress, selection, shared);
}

// A row that selects all it sees: no score is read.
__device__ inline void select_all(int64_t visible, int64_t k, int32_t* selection) {
  for (int64_t i = threadIdx.x; i < k; i += kTopKThreads) {
    selection[i] = i < visible ? static_cast<int32_t>(i) : -1;
  }
}

}  // namespace dhs::cuda
