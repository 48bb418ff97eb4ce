// How top_k runs on CUDA: a pure choice, for top_k.cu and its test.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/top_k/top_k.h"

namespace dhs {

// What the choice depends on: nothing of it is device memory.
struct TopKDesc {
  int64_t num_rows = 0;
  int64_t max_visible = 0;
  int32_t num_sms = 0;
  int64_t scratch_bytes = 0;
};

struct TopKConfig {
  int32_t num_splits = 1;  // blocks that share a long row; 1: one launch, one block per row
  // Rows that see no more go to one block even so. Device data decides, hence not the grid.
  int64_t one_block_scores = 0;
};

inline constexpr int32_t kTopKThreads = 1024;
inline constexpr int32_t kTopKBins = 2048;     // of a histogram: a digit has 11 bits
inline constexpr int64_t kTopKTile = 4096;     // scores that a block takes at a time
inline constexpr int32_t kTopKMaxSplits = 16;  // every block reads the histograms of all

// Scratch of one row: two histograms of every split, and its progress.
constexpr int64_t top_k_row_scratch_bytes(int32_t num_splits) {
  return int64_t{num_splits} * (2 * kTopKBins * 4 + 16);
}

// Precondition: num_rows > 0.
constexpr TopKConfig pick_top_k_config(const TopKDesc& desc) {
  constexpr int64_t kOneBlockScores = 32768;  // 128 KiB: quicker than three more launches
  constexpr int64_t kAlignment = 512;         // what laying out two arrays may lose
  const int64_t by_blocks = desc.num_sms / desc.num_rows;  // all of them run at once
  const int64_t by_scores = (desc.max_visible + kOneBlockScores - 1) / kOneBlockScores;
  const int64_t by_scratch =
      (desc.scratch_bytes - kAlignment) / (desc.num_rows * top_k_row_scratch_bytes(1));
  const int64_t splits = std::min({by_blocks, by_scores, by_scratch, int64_t{kTopKMaxSplits}});
  if (splits < 2) return {};
  return {static_cast<int32_t>(splits), kOneBlockScores};
}

// Precondition: the stream's scratch holds num_rows * top_k_row_scratch_bytes(num_splits) and
// alignment.
void launch_top_k_cuda_with(const TopKConfig& config, const TopKParams& params, Stream stream);

}  // namespace dhs
