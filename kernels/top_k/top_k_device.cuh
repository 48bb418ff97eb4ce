// The search for the k-th largest key on CUDA: stages, each by a whole block of kTopKThreads.
//
// Radix select: three digits of a 32-bit key, 11, 11 and 10 bits, the highest first. Per digit one
// pass counts the keys that share the digits found before, and the digit of the k-th largest key is
// the one where the counts from above reach k.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/top_k/top_k_config.h"

namespace dhs::cuda {

inline constexpr int kTopKPasses = 3;
inline constexpr unsigned kFullWarp = 0xffffffffu;
// Of the counters of one bin, since scores of one magnitude meet in few bins.
inline constexpr int kTopKCopies = 4;
inline constexpr int kTopKWarps = kTopKThreads / 32;
inline constexpr int kTopKScoresPerLane = static_cast<int>(kTopKTile / kTopKThreads);

// What the passes so far know of the k-th largest key.
struct TopKProgress {
  uint32_t prefix = 0;        // its digits
  uint32_t remaining = 0;     // of the keys with this prefix, how many are among the k largest
  uint32_t above_before = 0;  // keys in earlier splits that are larger than any with this prefix
  uint32_t ties_before = 0;   // keys in earlier splits with this prefix
};

struct TopKShared {
  uint32_t histogram[kTopKBins * kTopKCopies];
  uint64_t warp_totals[2][kTopKWarps];
  TopKProgress found;
};

struct TopKSegment {
  int64_t begin;
  int64_t end;
};

// An unsigned integer whose order is the order of the contract: -0 == +0, NaN == -infinity.
__device__ __forceinline__ uint32_t order_key(float score) {
  uint32_t bits = __float_as_uint(score);
  if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0xff800000u;
  if (bits == 0x80000000u) bits = 0;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

constexpr int digit_bits(int pass) { return pass == 2 ? 10 : 11; }
constexpr int digit_shift(int pass) { return pass == 0 ? 21 : pass == 1 ? 10 : 0; }

// In a pair of counts: the low half of all splits, the high half of the splits before this one.
__device__ __forceinline__ uint64_t count_pair(uint32_t all, uint32_t before) {
  return static_cast<uint64_t>(before) << 32 | all;
}

__device__ __forceinline__ uint64_t inclusive_scan_of_warp(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int delta = 1; delta < 32; delta *= 2) {
    const uint64_t other = __shfl_up_sync(kFullWarp, value, delta);
    if (lane >= delta) value += other;
  }
  return value;
}

struct WarpOffset {
  uint64_t before;  // of the warps before this one
  uint64_t all;
};

// Over one total per warp, which one lane of each has stored; after a barrier.
__device__ __forceinline__ WarpOffset offset_of_warp(const uint64_t* warp_totals) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const uint64_t sums = inclusive_scan_of_warp(warp_totals[threadIdx.x % 32]);
  const uint64_t before = __shfl_sync(kFullWarp, sums, warp == 0 ? 0 : warp - 1);
  return {warp == 0 ? 0 : before, __shfl_sync(kFullWarp, sums, 31)};
}

// Thread t has the bins 2046 - 2t and the one above: descending bins in order of threads.
__device__ __forceinline__ int lower_bin() {
  return kTopKBins - 2 - 2 * static_cast<int>(threadIdx.x);
}

__device__ inline void clear_histogram(TopKShared& shared) {
  for (int i = threadIdx.x; i < kTopKBins * kTopKCopies; i += kTopKThreads) {
    shared.histogram[i] = 0;
  }
  __syncthreads();
}

// This thread's two counts, which are cleared for the next pass. After a barrier.
__device__ __forceinline__ uint2 take_counts(TopKShared& shared) {
  uint2 counts{0, 0};
  uint32_t* bins = shared.histogram + lower_bin() * kTopKCopies;
  for (int copy = 0; copy < kTopKCopies; ++copy) {
    counts.x += bins[copy];
    counts.y += bins[kTopKCopies + copy];
    bins[copy] = bins[kTopKCopies + copy] = 0;
  }
  return counts;
}

// Counts digit `pass` of the keys of a segment that begin with `prefix`. Ends with a barrier.
__device__ inline void count_digits(const float* scores, TopKSegment segment, int pass,
                                    uint32_t prefix, TopKShared& shared) {
  const int shift = digit_shift(pass);
  const int bits = digit_bits(pass);
  const uint32_t copy = threadIdx.x % kTopKCopies;
  for (int64_t first = segment.begin + threadIdx.x; first < segment.end; first += kTopKTile) {
    float loaded[kTopKScoresPerLane];
    for (int j = 0; j < kTopKScoresPerLane; ++j) {
      const int64_t s = first + j * kTopKThreads;
      loaded[j] = s < segment.end ? scores[s] : 0.0f;
    }
    for (int j = 0; j < kTopKScoresPerLane; ++j) {
      const uint32_t key = order_key(loaded[j]);
      const bool counts = pass == 0 || key >> shift >> bits == prefix;
      const uint32_t digit = (key >> shift) & ((1u << bits) - 1);
      if (counts && first + j * kTopKThreads < segment.end) {
        atomicAdd(&shared.histogram[digit * kTopKCopies + copy], 1u);
      }
    }
  }
  __syncthreads();
}

// The next digit, from count pairs of this thread's two bins. Ends with a barrier.
__device__ inline TopKProgress find_digit(const TopKProgress& progress, int pass, uint64_t lower,
                                          uint64_t upper, TopKShared& shared) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint64_t both = lower + upper;
  const uint64_t in_warp = inclusive_scan_of_warp(both);
  if (lane == 31) shared.warp_totals[0][threadIdx.x / 32] = in_warp;
  __syncthreads();
  const uint64_t above_upper = offset_of_warp(shared.warp_totals[0]).before + in_warp - both;
  const uint64_t above_lower = above_upper + upper;
  const auto all = [](uint64_t pair) { return static_cast<uint32_t>(pair); };
  const bool in_upper =
      all(above_upper) < progress.remaining && progress.remaining <= all(above_lower);
  const bool in_lower =
      all(above_lower) < progress.remaining && progress.remaining <= all(above_lower + lower);
  if (in_upper || in_lower) {  // one thread of the block
    const uint64_t above = in_upper ? above_upper : above_lower;
    const uint64_t ties = in_upper ? upper : lower;
    const uint32_t digit = static_cast<uint32_t>(lower_bin() + (in_upper ? 1 : 0));
    shared.found = {progress.prefix << digit_bits(pass) | digit, progress.remaining - all(above),
                    progress.above_before + static_cast<uint32_t>(above >> 32),
                    static_cast<uint32_t>(ties >> 32)};
  }
  __syncthreads();
  return shared.found;
}

}  // namespace dhs::cuda
