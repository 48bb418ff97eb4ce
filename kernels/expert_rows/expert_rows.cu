// expert_rows on CUDA.
//
// plan: a stable counting sort. Each warp owns a segment of consecutive pairs: it counts them per
// expert, the counts of all segments are scanned expert by expert, and each warp takes the rows of
// its pairs from its own cursors. Up to kMaxPairsOfOneBlock pairs one block of 1 to 32 warps does
// all three stages with its counts in shared memory (at most 48 KB); beyond that there are three
// launches and the counts are in the stream's scratch. Moves 12 bytes per pair and 16 per count;
// latency is what it costs. 32 pairs take one ballot per bit of an expert's number.
//
// gather, combine: 256 threads, 4 columns each; grid (column blocks, rows); no shared memory. Bound
// by device memory: 8 and 4 * (top_k + 2) bytes per element; combine has 2 * top_k FLOPs, compiled
// without contraction to keep the bits of the CPU version.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/launch.h"
#include "kernels/expert_rows/expert_rows.h"

namespace dhs {
namespace {

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int64_t kMaxPairsOfOneBlock = 16 << 10;
constexpr int64_t kMaxWarps = 32;
constexpr int64_t kMaxSegments = 256;
constexpr int kSegmentsPerBlock = 8;

constexpr int kThreads = 256;
constexpr int kColumnsPerThread = 4;
constexpr int64_t kColumnsPerBlock = kThreads * kColumnsPerThread;
constexpr int64_t kMaxGridRows = 65535;

struct Segments {
  int64_t count = 1;
  int64_t num_pairs = kLanes;  // of each but the last; a multiple of kLanes
  int32_t expert_bits = 0;     // that tell experts apart
};

// ---- plan -------------------------------------------------------------------------------------

__device__ int64_t num_pairs_of(const ExpertPlanParams& params) {
  return params.experts.sizes[0] * params.experts.sizes[1];
}

// The pair's expert as this rank counts them, -1 when the pair is not planned or there is none.
__device__ int32_t own_expert_of(const ExpertPlanParams& params, int64_t pair) {
  if (pair >= num_pairs_of(params)) return -1;
  const int64_t top_k = params.experts.sizes[1];
  const int64_t expert = int64_t{params.experts(pair / top_k, pair % top_k)} - params.first_expert;
  return expert >= 0 && expert < params.num_experts ? static_cast<int32_t>(expert) : -1;
}

// The lanes whose pairs go to this lane's expert; none for a pair that is not planned.
__device__ uint32_t peers_of(int32_t expert, int32_t expert_bits) {
  uint32_t peers = __ballot_sync(kAllLanes, expert >= 0);
  for (int32_t bit = 0; bit < expert_bits; ++bit) {
    const bool is_set = (expert >> bit & 1) != 0;
    const uint32_t set = __ballot_sync(kAllLanes, is_set);
    peers &= is_set ? set : ~set;
  }
  return expert >= 0 ? peers : 0;
}

// counts: [num_experts] of one segment. One warp.
__device__ void count_segment(const ExpertPlanParams& params, const Segments& segments,
                              int64_t segment, int32_t* counts) {
  const int lane = threadIdx.x % kLanes;
  for (int32_t e = lane; e < params.num_experts; e += kLanes) counts[e] = 0;
  __syncwarp();
  const int64_t begin = segment * segments.num_pairs;
  const int64_t end = std::min(begin + segments.num_pairs, num_pairs_of(params));
  for (int64_t first = begin; first < end; first += kLanes) {
    const int32_t expert = own_expert_of(params, first + lane);
    const uint32_t peers = peers_of(expert, segments.expert_bits);
    const bool is_first = peers != 0 && __ffs(static_cast<int>(peers)) - 1 == lane;
    if (is_first) counts[expert] += __popc(peers);
    __syncwarp();
  }
}

// The sum of `value` over the threads before this one, and over all threads of the block.
struct BlockScan {
  int32_t before, all;
};
__device__ BlockScan scan_block(int32_t value, int32_t* warp_sums) {
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  int32_t inclusive = value;
  for (int delta = 1; delta < kLanes; delta *= 2) {
    const int32_t other = __shfl_up_sync(kAllLanes, inclusive, delta);
    if (lane >= delta) inclusive += other;
  }
  if (lane == kLanes - 1) warp_sums[warp] = inclusive;
  __syncthreads();
  BlockScan scan{inclusive - value, 0};
  for (int i = 0; i < static_cast<int>(blockDim.x) / kLanes; ++i) {
    if (i < warp) scan.before += warp_sums[i];
    scan.all += warp_sums[i];
  }
  __syncthreads();  // warp_sums may be written again
  return scan;
}

// Turns the counts of all segments into each segment's first row per expert. One block.
__device__ void scan_counts(const ExpertPlanParams& params, const Segments& segments,
                            int32_t* counts) {
  __shared__ int32_t warp_sums[kMaxWarps];
  const int64_t num_experts = params.num_experts;
  int32_t planned = 0;  // pairs of the experts before `first`
  for (int64_t first = 0; first < num_experts; first += blockDim.x) {
    const int64_t expert = first + threadIdx.x;
    int32_t total = 0;
    if (expert < num_experts) {
      for (int64_t s = 0; s < segments.count; ++s) total += counts[s * num_experts + expert];
    }
    const BlockScan scan = scan_block(total, warp_sums);
    int32_t row = planned + scan.before;
    planned += scan.all;
    if (expert >= num_experts) continue;
    params.offsets(expert) = row;
    for (int64_t s = 0; s < segments.count; ++s) {
      int32_t& cursor = counts[s * num_experts + expert];
      const int32_t count = cursor;
      cursor = row;
      row += count;
    }
  }
  if (threadIdx.x == 0) params.offsets(num_experts) = planned;
}

// cursors: [num_experts] of one segment. One warp.
__device__ void place_segment(const ExpertPlanParams& params, const Segments& segments,
                              int64_t segment, int32_t* cursors) {
  const int lane = threadIdx.x % kLanes;
  const int64_t begin = segment * segments.num_pairs;
  const int64_t end = std::min(begin + segments.num_pairs, num_pairs_of(params));
  for (int64_t first = begin; first < end; first += kLanes) {
    const int64_t pair = first + lane;
    const int32_t expert = own_expert_of(params, pair);
    const uint32_t peers = peers_of(expert, segments.expert_bits);
    const int num_before = __popc(peers & ((1u << lane) - 1));
    const int32_t row = peers != 0 ? cursors[expert] + num_before : -1;
    if (peers != 0) params.pairs(row) = static_cast<int32_t>(pair);
    if (pair < end) params.row_of_pair(pair) = row;
    __syncwarp();
    if (peers != 0 && num_before == 0) cursors[expert] += __popc(peers);
    __syncwarp();
  }
}

__global__ void plan_in_one_block(ExpertPlanParams params, Segments segments) {
  DHS_DYN_SHARED(int32_t, counts);  // [warps, num_experts]
  const int64_t segment = threadIdx.x / kLanes;
  int32_t* own_counts = counts + segment * params.num_experts;
  count_segment(params, segments, segment, own_counts);
  __syncthreads();
  scan_counts(params, segments, counts);
  __syncthreads();
  place_segment(params, segments, segment, own_counts);
}

__global__ void count_pairs(ExpertPlanParams params, Segments segments, int32_t* counts) {
  const int64_t segment = int64_t{blockIdx.x} * kSegmentsPerBlock + threadIdx.x / kLanes;
  if (segment >= segments.count) return;
  count_segment(params, segments, segment, counts + segment * params.num_experts);
}

__global__ void scan_all_counts(ExpertPlanParams params, Segments segments, int32_t* counts) {
  scan_counts(params, segments, counts);
}

__global__ void place_pairs(ExpertPlanParams params, Segments segments, int32_t* counts) {
  const int64_t segment = int64_t{blockIdx.x} * kSegmentsPerBlock + threadIdx.x / kLanes;
  if (segment >= segments.count) return;
  place_segment(params, segments, segment, counts + segment * params.num_experts);
}

// At most `max_segments` of at least `min_pairs` pairs each.
Segments cut(const ExpertPlanParams& params, int64_t max_segments, int64_t min_pairs) {
  Segments segments;
  const int64_t num_pairs = params.experts.sizes[0] * params.experts.sizes[1];
  const int64_t evenly = (num_pairs + max_segments - 1) / max_segments;
  segments.num_pairs = std::max((evenly + kLanes - 1) / kLanes * kLanes, min_pairs);
  segments.count = std::max<int64_t>(1, (num_pairs + segments.num_pairs - 1) / segments.num_pairs);
  while (int64_t{1} << segments.expert_bits < params.num_experts) ++segments.expert_bits;
  return segments;
}

void stop(const char* why) {
  std::fprintf(stderr, "expert_plan: %s\n", why);
  std::abort();
}

void plan_in_three_launches(const ExpertPlanParams& params, Stream stream) {
  const int64_t num_experts = std::max<int64_t>(1, params.num_experts);
  const int64_t segments_that_fit =
      stream.scratch_bytes / (num_experts * static_cast<int64_t>(sizeof(int32_t)));
  if (segments_that_fit == 0) stop("the stream's scratch is too small for the counts");
  const Segments segments = cut(params, std::min(kMaxSegments, segments_that_fit), 16 * kLanes);
  auto* counts = reinterpret_cast<int32_t*>(stream.scratch);
  const unsigned num_blocks =
      static_cast<unsigned>((segments.count + kSegmentsPerBlock - 1) / kSegmentsPerBlock);
  const cuda::Shape of_segments{.grid = num_blocks, .block = kSegmentsPerBlock * kLanes};
  cuda::launch("expert_plan", count_pairs, of_segments, stream, params, segments, counts);
  cuda::launch("expert_plan", scan_all_counts, {.grid = 1, .block = 256}, stream, params, segments,
               counts);
  cuda::launch("expert_plan", place_pairs, of_segments, stream, params, segments, counts);
}

// ---- gather, combine --------------------------------------------------------------------------

__global__ void gather_rows(ExpertGatherParams params) {
  const int64_t width = params.x.sizes[1];
  const int64_t num_pairs = *params.num_pairs;
  const int64_t first = blockIdx.x * kColumnsPerBlock + threadIdx.x;
  for (int64_t row = blockIdx.y; row < num_pairs; row += gridDim.y) {
    const float* x = params.x.row(params.pairs(row) / params.top_k);
    float* in = params.in.row(row);
    for (int i = 0; i < kColumnsPerThread; ++i) {
      const int64_t column = first + i * kThreads;
      if (column < width) in[column] = x[column];
    }
  }
}

__device__ void combine_columns(const ExpertCombineParams& params, int64_t token, int64_t first) {
  const int64_t width = params.out.sizes[1];
  const int64_t top_k = params.weights.sizes[1];
  float* out = params.out.row(token);
  float sums[kColumnsPerThread];
  for (int i = 0; i < kColumnsPerThread; ++i) {
    const int64_t column = first + i * kThreads;
    sums[i] = column < width ? out[column] : 0.0f;
  }
  for (int64_t rank = 0; rank < top_k; ++rank) {
    const int32_t row = params.row_of_pair(token * top_k + rank);
    if (row < 0) continue;
    const float weight = params.weights(token, rank);
    const float* y = params.y.row(row);
    for (int i = 0; i < kColumnsPerThread; ++i) {
      const int64_t column = first + i * kThreads;
      if (column < width) sums[i] += weight * y[column];
    }
  }
  for (int i = 0; i < kColumnsPerThread; ++i) {
    const int64_t column = first + i * kThreads;
    if (column < width) out[column] = sums[i];
  }
}

__global__ void combine_rows(ExpertCombineParams params) {
  const int64_t first = blockIdx.x * kColumnsPerBlock + threadIdx.x;
  for (int64_t token = blockIdx.y; token < params.out.sizes[0]; token += gridDim.y) {
    combine_columns(params, token, first);
  }
}

cuda::Shape shape_of(int64_t num_rows, int64_t width) {
  const auto column_blocks =
      static_cast<unsigned>((width + kColumnsPerBlock - 1) / kColumnsPerBlock);
  return {.grid = {column_blocks, static_cast<unsigned>(std::min(num_rows, kMaxGridRows))},
          .block = kThreads};
}

}  // namespace

void launch_expert_plan_cuda(const ExpertPlanParams& params, Stream stream) {
  const int64_t num_pairs = params.experts.sizes[0] * params.experts.sizes[1];
  const int64_t counts_bytes = params.num_experts * static_cast<int64_t>(sizeof(int32_t));
  if (num_pairs > kMaxPairsOfOneBlock || counts_bytes > cuda::kDefaultSharedBytes) {
    return plan_in_three_launches(params, stream);
  }
  const int64_t warps_that_fit =
      cuda::kDefaultSharedBytes / std::max<int64_t>(1, counts_bytes + kLanes);
  const Segments segments = cut(params, std::clamp<int64_t>(warps_that_fit, 1, kMaxWarps), kLanes);
  cuda::launch("expert_plan", plan_in_one_block,
               {.grid = 1,
                .block = static_cast<unsigned>(segments.count * kLanes),
                .shared_bytes = segments.count * counts_bytes},
               stream, params, segments);
}

void launch_expert_gather_cuda(const ExpertGatherParams& params, Stream stream) {
  cuda::launch("expert_gather", gather_rows, shape_of(params.pairs.sizes[0], params.x.sizes[1]),
               stream, params);
}

void launch_expert_combine_cuda(const ExpertCombineParams& params, Stream stream) {
  cuda::launch("expert_combine", combine_rows, shape_of(params.out.sizes[0], params.out.sizes[1]),
               stream, params);
}

}  // namespace dhs
