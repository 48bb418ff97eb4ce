// candidate_walk on CUDA: grid num_blocks, 256 threads, 1.3 KB and 8 bytes per rank of shared
// memory. A warp scores a candidate, lanes sharing the rank; one thread picks. Bound by latency:
// the rows of a block follow each other, each two dependent loads, some shuffles and four
// barriers. Sums of a score are in a fixed order of lanes.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kernels/candidate_walk/candidate_walk.h"
#include "kernels/candidate_walk/candidate_walk_pick.h"
#include "kernels/cuda/launch.h"

namespace dhs {
namespace {

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kThreads = 256;
constexpr int64_t kMaxRank = 4096;

__device__ float codebook_value(const CandidateWalkParams& params, const void* codebook,
                                int64_t i) {
  if (params.codebook_dtype == DType::kF32) return static_cast<const float*>(codebook)[i];
  const uint32_t bits = static_cast<const Bf16*>(codebook)[i];
  return __uint_as_float(bits << 16);
}

__device__ double sum_lanes(double value) {
  for (int bits = kLanes / 2; bits > 0; bits /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, bits);
  }
  return value;
}

// weighted: [rank] shared memory, predecessor * hidden.
__device__ void score_row(const CandidateWalkParams& params, int64_t row_idx, int64_t previous,
                          double* weighted, WalkScores& row) {
  const int64_t rank = params.hidden.sizes[1];
  for (int64_t r = threadIdx.x; r < rank; r += blockDim.x) {
    const double before = codebook_value(params, params.predecessor, previous * rank + r);
    weighted[r] = before * params.hidden(row_idx, r);
  }
  __syncthreads();
  const int lane = threadIdx.x % kLanes, num_warps = blockDim.x / kLanes;
  for (int64_t c = threadIdx.x / kLanes; c < params.values.sizes[1]; c += num_warps) {
    const int64_t first = int64_t{params.tokens(row_idx, c)} * rank;
    double dot = 0;
    for (int64_t r = lane; r < rank; r += kLanes) {
      dot += weighted[r] * codebook_value(params, params.successor, first + r);
    }
    dot = sum_lanes(dot);
    if (lane == 0) row.scores[c] = comparable_score(params.values(row_idx, c) + dot);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) candidate_walk_kernel(CandidateWalkParams params) {
  DHS_DYN_SHARED(double, memory);
  auto& row = *reinterpret_cast<WalkScores*>(memory);
  auto* weighted = reinterpret_cast<double*>(&row + 1);
  __shared__ int32_t picked;
  const int64_t block_idx = blockIdx.x, num_drafts = params.drafts.sizes[1];
  const int64_t num_candidates = params.values.sizes[1];
  const double temperature = params.sampling(block_idx).temperature;
  int64_t previous = params.anchors(block_idx);
  const bool is_padding = previous < 0;
  for (int64_t d = 0; d < num_drafts; ++d) {
    if (is_padding) {
      if (threadIdx.x == 0) write_padding(params, block_idx, d);
      continue;
    }
    const int64_t row_idx = block_idx * num_drafts + d;
    score_row(params, row_idx, previous, weighted, row);
    if (threadIdx.x < num_candidates) {
      const int32_t best = best_score(row.scores, num_candidates);
      const double below = double{row.scores[threadIdx.x]} - row.scores[best];
      row.drawn[threadIdx.x] = temperature > 0 ? exp(below / temperature) : 0;
      row.plain[threadIdx.x] = exp(below);
      if (threadIdx.x == 0) row.best = best;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      picked = params.tokens(row_idx, pick_candidate(params, row, block_idx, d));
      params.drafts(block_idx, d) = picked;
    }
    __syncthreads();
    previous = picked;
  }
}

}  // namespace

void launch_candidate_walk_cuda(const CandidateWalkParams& params, Stream stream) {
  const int64_t num_candidates = params.values.sizes[1], rank = params.hidden.sizes[1];
  if (num_candidates < 1 || num_candidates > kMaxWalkCandidates || rank > kMaxRank) {
    std::fprintf(stderr, "candidate_walk: %lld candidates, rank %lld; at most %lld and %lld\n",
                 static_cast<long long>(num_candidates), static_cast<long long>(rank),
                 static_cast<long long>(kMaxWalkCandidates), static_cast<long long>(kMaxRank));
    std::abort();
  }
  cuda::launch("candidate_walk", candidate_walk_kernel,
               {.grid = static_cast<unsigned>(params.drafts.sizes[0]),
                .block = dim3(kThreads),
                .shared_bytes = static_cast<int64_t>(sizeof(WalkScores)) +
                                rank * static_cast<int64_t>(sizeof(double))},
               stream, params);
}

}  // namespace dhs
