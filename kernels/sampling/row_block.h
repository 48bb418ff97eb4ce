// row_block: what the threads of a block do together for one row. Every function is called by all
// of them with the same arguments (but for `own`), and returns the same to all (but for `before`).
#pragma once

#include "kernels/sampling/row_order.h"

namespace dhs {

struct BlockSums {
  RowSum before, all;  // the sum over the threads before this one, and over all
};
__device__ inline BlockSums scan_block(RowSum own, RowOrderShared& shared) {
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  RowSum inclusive = own;
  for (int delta = 1; delta < kLanes; delta *= 2) {
    const RowSum other{__shfl_up_sync(kAllLanes, inclusive.num_tokens, delta),
                       __shfl_up_sync(kAllLanes, inclusive.mass, delta)};
    if (lane >= delta) inclusive = inclusive + other;
  }
  if (lane == kLanes - 1) shared.warp_sums[warp] = inclusive;
  __syncthreads();
  BlockSums sums{{inclusive.num_tokens - own.num_tokens, inclusive.mass - own.mass}, {}};
  for (int i = 0; i < static_cast<int>(blockDim.x) / kLanes; ++i) {
    if (i < warp) sums.before = sums.before + shared.warp_sums[i];
    sums.all = sums.all + shared.warp_sums[i];
  }
  __syncthreads();  // warp_sums may be written again
  return sums;
}

__device__ inline Place max_block(Place own, RowOrderShared& shared) {
  for (int bits = kLanes / 2; bits > 0; bits /= 2) {
    const Place other = __shfl_xor_sync(kAllLanes, own, bits);
    own = other > own ? other : own;
  }
  if (threadIdx.x % kLanes == 0) shared.warp_sums[threadIdx.x / kLanes].mass = own;
  __syncthreads();
  Place largest = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kLanes; ++i) {
    const Place other = shared.warp_sums[i].mass;
    largest = other > largest ? other : largest;
  }
  __syncthreads();
  return largest;
}

// sum_of(i): of item i < num_items. `base` is what comes before item 0; it does not meet the
// limits.
template <class SumOf>
__device__ Stop find_stop(int num_items, SumOf sum_of, const WalkLimits& limits, RowSum base,
                          RowOrderShared& shared) {
  const int per_thread = (num_items + static_cast<int>(blockDim.x) - 1) / blockDim.x;
  const int begin = static_cast<int>(threadIdx.x) * per_thread;
  const int end = begin + per_thread < num_items ? begin + per_thread : num_items;
  RowSum own;
  for (int i = begin; i < end; ++i) own = own + sum_of(i);
  if (threadIdx.x == 0) shared.stop.idx = -1;
  const BlockSums sums = scan_block(own, shared);
  RowSum reached = base + sums.before;
  for (int i = begin; i < end; ++i) {
    const RowSum through = reached + sum_of(i);
    if (!limits.met_by(reached) && limits.met_by(through)) shared.stop = {i, reached, through};
    reached = through;
  }
  __syncthreads();
  Stop stop = shared.stop;
  if (stop.idx < 0) stop.through = base + sums.all;
  __syncthreads();  // stop may be written again
  return stop;
}

// Sorts shared.sorted[0, count) to descending order.
__device__ inline void sort_places(int count, RowOrderShared& shared) {
  int padded = 1;
  while (padded < count) padded *= 2;
  for (int i = count + threadIdx.x; i < padded; i += blockDim.x) shared.sorted[i] = 0;
  __syncthreads();
  for (int run = 2; run <= padded; run *= 2) {
    for (int stride = run / 2; stride > 0; stride /= 2) {
      for (int i = threadIdx.x; i < padded / 2; i += blockDim.x) {
        const int low = 2 * i - (i & (stride - 1));
        const bool is_descending = (low & run) == 0;
        const Place a = shared.sorted[low], b = shared.sorted[low + stride];
        if ((a < b) != is_descending) continue;
        shared.sorted[low] = b;
        shared.sorted[low + stride] = a;
      }
      __syncthreads();
    }
  }
}

}  // namespace dhs
