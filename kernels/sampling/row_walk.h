// row_walk: walks down the descending order of one row until a number of tokens or a mass is
// reached. One block, all threads together: every function here is called by all of them with the
// same arguments, and returns the same to all of them.
#pragma once

#include "kernels/sampling/row_block.h"
#include "kernels/sampling/row_order.h"

namespace dhs {

// Bin b holds the places (highest - (b + 1) * 2^shift, highest - b * 2^shift].
struct BinRange {
  Place highest = 0;
  int shift = 0;

  __device__ uint64_t bin_of(Place place) const {
    return place <= highest ? (highest - place) >> shift : kNoLimit;
  }
};

// The bins that cover everything from `highest` down to the values of `lowest_key`.
__device__ inline BinRange bins_down_to(Place highest, uint32_t lowest_key) {
  BinRange range{highest, 0};
  const Place span = highest - (Place{lowest_key} << 32);
  while (span >> range.shift >= kNumBins) ++range.shift;
  return range;
}

struct RowWalk {
  RowLogits row;
  RowOrderShared& shared;
  Softmax softmax{0, 1};
  bool has_mass = false;  // whether mass is counted; no limit of mass is met otherwise
  BinRange all;           // the bins that a walk starts with
  BinRange counted;       // what the bins hold now
  bool is_counted = false;

  // Where a walk stops: among places [lowest, highest], at most kMaxLeft tokens.
  struct Cut {
    bool is_found = false;
    Place highest = 0, lowest = 0;
    RowSum before;   // of the places above
    RowSum through;  // all there is, when no token meets the limits
  };

  __device__ uint64_t mass_at(uint32_t key) const { return has_mass ? mass_of(softmax(key)) : 0; }

  __device__ void count(const BinRange& range) {
    counted = range;
    is_counted = true;
    for (int bin = threadIdx.x; bin < kNumBins; bin += blockDim.x) {
      shared.num_tokens[bin] = 0;
      for (int limb = 0; limb < kNumLimbs; ++limb) shared.mass_limbs[limb][bin] = 0;
    }
    __syncthreads();
    for_each_token(row, [&](int64_t token, uint32_t key) {
      const uint64_t bin = range.bin_of(place_of(key, token));
      if (bin >= kNumBins) return;
      atomicAdd(&shared.num_tokens[bin], 1u);
      uint64_t mass = mass_at(key);
      for (int limb = 0; limb < kNumLimbs; ++limb, mass >>= kLimbBits) {
        const auto low = static_cast<uint32_t>(mass & ((1u << kLimbBits) - 1));
        if (low != 0) atomicAdd(&shared.mass_limbs[limb][bin], low);
      }
    });
    __syncthreads();
  }

  __device__ Stop stop_bin(const WalkLimits& limits, RowSum base) {
    return find_stop(
        kNumBins,
        [&](int bin) {
          RowSum sum{shared.num_tokens[bin], 0};
          for (int limb = 0; limb < kNumLimbs; ++limb) {
            sum.mass += uint64_t{shared.mass_limbs[limb][bin]} << limb * kLimbBits;
          }
          return sum;
        },
        limits, base, shared);
  }

  __device__ Cut narrow(const WalkLimits& limits) {
    if (!is_counted || counted.highest != all.highest || counted.shift != all.shift) count(all);
    RowSum base;
    for (;;) {
      const Stop stop = stop_bin(limits, base);
      if (stop.idx < 0) return {.through = stop.through};
      const Place highest = counted.highest - (static_cast<Place>(stop.idx) << counted.shift);
      const Place last = (Place{1} << counted.shift) - 1;
      if (stop.through.num_tokens - stop.before.num_tokens <= kMaxLeft) {
        const Place lowest = highest > last ? highest - last : 0;
        return {.is_found = true, .highest = highest, .lowest = lowest, .before = stop.before};
      }
      base = stop.before;
      count({highest, counted.shift > kBinBits ? counted.shift - kBinBits : 0});
    }
  }

  // Fills shared.sorted with the places in [lowest, highest], and returns how many there are.
  __device__ int sort_between(Place lowest, Place highest) {
    if (threadIdx.x == 0) shared.num_sorted = 0;
    __syncthreads();
    for_each_token(row, [&](int64_t token, uint32_t key) {
      const Place place = place_of(key, token);
      if (place < lowest || place > highest) return;
      shared.sorted[atomicAdd(&shared.num_sorted, 1u)] = place;
    });
    __syncthreads();
    const int num_sorted = static_cast<int>(shared.num_sorted);
    sort_places(num_sorted, shared);
    return num_sorted;
  }

  struct End {
    int32_t token = -1;  // the one that met the limits, -1: none does
    RowSum through;      // of it and all before it
  };
  __device__ End walk(const WalkLimits& limits) {
    const Cut cut = narrow(limits);
    if (!cut.is_found) return {-1, cut.through};
    const int num_left = sort_between(cut.lowest, cut.highest);
    const Stop stop = find_stop(
        num_left,
        [&](int i) {
          return RowSum{1, mass_at(key_at(shared.sorted[i]))};
        },
        limits, cut.before, shared);
    const End end{token_at(shared.sorted[stop.idx]), stop.through};
    __syncthreads();  // sorted may be written again
    return end;
  }

  // Sorts the first `num_tokens` of the order (fewer if there are no more; at most kMaxLeft) into
  // shared.sorted, possibly with some that follow them. Returns how many were asked for and found.
  __device__ int sort_first(int num_tokens) {
    const Cut cut = narrow({.num_tokens = static_cast<uint64_t>(num_tokens)});
    const int num_sorted = sort_between(cut.lowest, all.highest);
    return num_sorted < num_tokens ? num_sorted : num_tokens;
  }
};

}  // namespace dhs
