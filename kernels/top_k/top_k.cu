// top_k on CUDA: exact radix select, then an ordered compaction. 1024 threads, 33 KB of shared
// memory. The stages are in top_k_device.cuh and
// top_k_select.cuh.
//
// One block per row (grid: rows): 4 reads of a row's scores, three to find the k-th largest key and
// one to write, 16 bytes per score in all, mostly from L2, where index_score has just put them.
//
// Few long rows (grid: splits, rows; 4 launches, the same 4 reads): a block has a segment of its
// row. It counts a digit and leaves its histogram in scratch; the next launch adds up all of them,
// finds the digit, and with the histograms of the splits before it how many selected positions come
// before its own. 8 KB per split and launch on top. Rows that are short after all are done whole by
// the first launch.
//
// Only integers are added, and the result is fully determined by the scores: no order matters.
// Rows that see no more than k, and padding rows (which see 0), read no score.
#include "kernels/top_k/top_k.h"
#include "kernels/top_k/top_k_select.cuh"

namespace dhs {
namespace {

using cuda::TopKProgress;
using cuda::TopKSegment;
using cuda::TopKShared;

constexpr const char* kOp = "top_k";
constexpr int64_t kMaxGridRows = 65535;

__global__ void __launch_bounds__(kTopKThreads, 2) top_k_kernel(TopKParams params) {
  DHS_DYN_SHARED(TopKShared, shared);
  const int64_t t = blockIdx.x;
  const int64_t visible = params.visible(t);
  const int64_t k = params.selection.sizes[1];
  if (visible <= k) return cuda::select_all(visible, k, params.selection.row(t));
  cuda::select_of_row(params.scores.row(t), visible, static_cast<uint32_t>(k),
                      params.selection.row(t), *shared);
}

// What the launches of split rows leave to each other.
struct Scratch {
  uint32_t* histograms;    // [2, num_rows, num_splits, kTopKBins]: of even and of odd passes
  TopKProgress* progress;  // [num_rows, num_splits]
};

// A split of a row: what its block does in this launch.
struct Split {
  int64_t row_place;  // of the row's first split
  int index;
  int num_active;  // splits with a segment; they come first
  TopKSegment segment;
};

__device__ Split this_split(int64_t visible, int64_t row, int num_splits) {
  const int64_t share = (visible + num_splits - 1) / num_splits;
  const int64_t length = (share + kTopKTile - 1) / kTopKTile * kTopKTile;
  const int64_t begin = blockIdx.x * length;
  const int64_t end = begin + length < visible ? begin + length : visible;
  return {row * num_splits,
          static_cast<int>(blockIdx.x),
          static_cast<int>((visible + length - 1) / length),
          {begin, end}};
}

__device__ uint32_t* histogram_of(const Scratch& scratch, int pass, const Split& split, int index) {
  const int64_t places = int64_t{gridDim.x} * gridDim.y;
  const int64_t place = split.row_place + index + (pass % 2) * places;
  return scratch.histograms + place * kTopKBins;
}

// Finds digit `pass` from the histograms that the launch before has left.
__device__ TopKProgress next_progress(const Scratch& scratch, const Split& split, int pass,
                                      TopKProgress progress, TopKShared& shared) {
  uint64_t lower = 0;
  uint64_t upper = 0;
  for (int i = 0; i < split.num_active; ++i) {
    const uint2 counts =
        *reinterpret_cast<const uint2*>(histogram_of(scratch, pass, split, i) + cuda::lower_bin());
    lower += cuda::count_pair(counts.x, i < split.index ? counts.x : 0);
    upper += cuda::count_pair(counts.y, i < split.index ? counts.y : 0);
  }
  return cuda::find_digit(progress, pass, lower, upper, shared);
}

// Launch `pass` of 0 .. kTopKPasses: finds the digit of the pass before, then counts or, at last,
// writes.
__global__ void __launch_bounds__(kTopKThreads)
    top_k_split_kernel(TopKParams params, Scratch scratch, int64_t one_block_scores, int pass) {
  DHS_DYN_SHARED(TopKShared, shared);
  const int64_t t = blockIdx.y;
  const int64_t visible = params.visible(t);
  const int64_t k = params.selection.sizes[1];
  const float* scores = params.scores.row(t);
  int32_t* selection = params.selection.row(t);
  if (visible <= k || visible <= one_block_scores) {
    if (pass != 0 || blockIdx.x != 0) return;
    if (visible <= k) return cuda::select_all(visible, k, selection);
    return cuda::select_of_row(scores, visible, static_cast<uint32_t>(k), selection, *shared);
  }
  const Split split = this_split(visible, t, static_cast<int>(gridDim.x));
  if (split.index >= split.num_active) return;
  TopKProgress* stored = scratch.progress + split.row_place + split.index;
  TopKProgress progress{.remaining = static_cast<uint32_t>(k)};
  if (pass > 0) {
    if (pass > 1) progress = *stored;
    progress = next_progress(scratch, split, pass - 1, progress, *shared);
  }
  if (pass == cuda::kTopKPasses) {
    return cuda::write_selection(scores, split.segment, progress, selection, *shared);
  }
  // All threads have read it: next_progress has barriers.
  if (pass > 0 && threadIdx.x == 0) *stored = progress;
  cuda::clear_histogram(*shared);
  cuda::count_digits(scores, split.segment, pass, progress.prefix, *shared);
  *reinterpret_cast<uint2*>(histogram_of(scratch, pass, split, split.index) + cuda::lower_bin()) =
      cuda::take_counts(*shared);
}

}  // namespace

void launch_top_k_cuda_with(const TopKConfig& config, const TopKParams& params, Stream stream) {
  const int64_t num_rows = params.selection.sizes[0];
  if (config.num_splits < 2) {
    return cuda::launch(
        kOp, top_k_kernel,
        {.grid = {unsigned(num_rows)}, .block = kTopKThreads, .shared_bytes = sizeof(TopKShared)},
        stream, params);
  }
  cuda::ScratchCarver carver(stream);
  const int64_t places = num_rows * config.num_splits;
  const Scratch scratch{carver.take<uint32_t>(2 * places * kTopKBins),
                        carver.take<TopKProgress>(places)};
  if (scratch.progress == nullptr || num_rows > kMaxGridRows) {
    cuda::check(cudaErrorInvalidValue, kOp);
  }
  for (int pass = 0; pass <= cuda::kTopKPasses; ++pass) {
    cuda::launch(kOp, top_k_split_kernel,
                 {.grid = {unsigned(config.num_splits), unsigned(num_rows)},
                  .block = kTopKThreads,
                  .shared_bytes = sizeof(TopKShared)},
                 stream, params, scratch, config.one_block_scores, pass);
  }
}

void launch_top_k_cuda(const TopKParams& params, Stream stream) {
  if (params.selection.sizes[0] == 0 || params.selection.sizes[1] == 0) return;
  const TopKConfig config = pick_top_k_config({.num_rows = params.selection.sizes[0],
                                               .max_visible = params.scores.sizes[1],
                                               .num_sms = stream.num_sms,
                                               .scratch_bytes = stream.scratch_bytes});
  launch_top_k_cuda_with(config, params, stream);
}

}  // namespace dhs
