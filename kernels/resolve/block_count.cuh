// Counting and ranking over the threads of one block, in order of thread.
#pragma once

#include "kernels/cuda/cuda.h"

#if !defined(__CUDACC__)
#include <cstdio>
#include <cstdlib>
#endif

namespace dhs::row_cache {

inline constexpr int kMaxWarps = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Shared memory of one block. Every function leaves it ready for the next.
struct BlockShared {
  int32_t warp_sums[kMaxWarps];
  int32_t slots[kMaxThreads];
  int32_t cursor;
};

__device__ __forceinline__ int lane_idx() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int warp_idx() { return static_cast<int>(threadIdx.x / 32); }
__device__ __forceinline__ int num_warps() { return static_cast<int>(blockDim.x / 32); }
__device__ __forceinline__ int num_threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int thread_idx() { return static_cast<int>(threadIdx.x); }

// How many of the votes are of lower lanes.
__device__ __forceinline__ int votes_before(unsigned votes) {
  return __popc(votes & ((1u << lane_idx()) - 1));
}

struct Sums {
  int32_t before;  // of the warps before this one
  int32_t total;
};

// All threads call it with their warp's sum, the same in all of its lanes.
__device__ inline Sums sum_over_warps(int32_t warp_sum, BlockShared& shared) {
  if (lane_idx() == 0) shared.warp_sums[warp_idx()] = warp_sum;
  __syncthreads();
  Sums sums = {0, 0};
  for (int warp = 0; warp < num_warps(); ++warp) {
    if (warp == warp_idx()) sums.before = sums.total;
    sums.total += shared.warp_sums[warp];
  }
  __syncthreads();
  return sums;
}

__device__ inline int32_t block_sum(int32_t value, BlockShared& shared) {
  return sum_over_warps(__reduce_add_sync(kAllLanes, value), shared).total;
}

struct Rank {
  int32_t before;  // flags set in threads before this one
  int32_t total;
};

__device__ inline Rank rank_in_block(bool flag, BlockShared& shared) {
  const unsigned votes = __ballot_sync(kAllLanes, flag);
  const Sums sums = sum_over_warps(__popc(votes), shared);
  return {sums.before + votes_before(votes), sums.total};
}

// counts[0] + ... + counts[num - 1].
__device__ inline int32_t sum_of_counts(const int32_t* counts, int32_t num, BlockShared& shared) {
  int32_t sum = 0;
  for (int32_t i = thread_idx(); i < num; i += num_threads()) sum += counts[i];
  return block_sum(sum, shared);
}

__device__ __forceinline__ void add_to(int64_t* counter, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(counter), static_cast<unsigned long long>(value));
}

// A precondition does not hold: nothing may come of this launch.
__device__ inline void stop_unless(bool holds, [[maybe_unused]] const char* why) {
  if (holds) return;
#if defined(__CUDACC__)
  __trap();
#else
  std::fprintf(stderr, "%s\n", why);
  std::abort();
#endif
}

}  // namespace dhs::row_cache
