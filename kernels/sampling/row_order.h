// row_order: one block finds its way in the descending order of one row of logits, without sorting
// the row.
//
// The place of a token is a 64-bit number, larger for what comes earlier: the order of its value,
// then the lower token. A walk counts tokens and mass in kNumBins equal ranges of places, enters
// the range in which it has to stop, counts that one again if it holds too many tokens, and sorts
// the few that are left. Mass is an integer, units of 2^-41 of the likeliest token's: sums need no
// order, so nothing here depends on the number of threads. What has less than a unit counts as
// impossible; a draw resolves 2^-32.
#pragma once

#include "kernels/activation/device_exp.h"
#include "kernels/cuda/cuda.h"
#include "kernels/sampling/sampling.h"

namespace dhs {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kMaxWarps = 32;
inline constexpr int kBinBits = 10;
inline constexpr int kNumBins = 1 << kBinBits;
inline constexpr int kMaxSorted = 2048;
inline constexpr int kMaxLeft = kMaxSorted / 2;  // tokens of the range in which a walk stops
inline constexpr int kMassBits = 41;
// Mass is counted in three 32-bit words of this many bits each: shared memory adds those natively.
inline constexpr int kNumLimbs = 3;
inline constexpr int kLimbBits = 14;
inline constexpr int64_t kMaxVocabSize = int64_t{1} << (32 - kLimbBits);
inline constexpr uint32_t kLowestKey = 0x00800000u;  // of the lowest finite float
inline constexpr uint64_t kNoLimit = ~uint64_t{0};

using Place = uint64_t;

struct RowSum {
  uint64_t num_tokens = 0;
  uint64_t mass = 0;
};
__device__ inline RowSum operator+(RowSum a, RowSum b) {
  return {a.num_tokens + b.num_tokens, a.mass + b.mass};
}

// A walk stops with the token that meets one of these; both are at least 1.
struct WalkLimits {
  uint64_t num_tokens = kNoLimit;
  uint64_t mass = kNoLimit;
  __device__ bool met_by(RowSum sum) const {
    return sum.num_tokens >= num_tokens || sum.mass >= mass;
  }
};

// The first item of several that meets the limits; idx is -1 when none does, and then `through`
// sums up all of them.
struct Stop {
  int32_t idx = -1;
  RowSum before, through;
};

struct RowOrderShared {
  Place sorted[kMaxSorted];
  RowSum warp_sums[kMaxWarps];
  Stop stop;
  uint32_t num_sorted;
  uint32_t num_tokens[kNumBins];
  uint32_t mass_limbs[kNumLimbs][kNumBins];
};

// Larger for larger values, 0 for what cannot be drawn: NaN and -inf. +inf is the largest float, -0
// is 0.
__device__ inline uint32_t key_of(float logit) {
  constexpr float kLargest = 3.402823466e38f;
  const float value = logit + 0.0f;
  if (!(value >= -kLargest)) return 0;
  const uint32_t bits = __float_as_uint(value > kLargest ? kLargest : value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ inline float value_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ inline Place place_of(uint32_t key, int64_t token) {
  return Place{key} << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
__device__ inline uint32_t key_at(Place place) { return static_cast<uint32_t>(place >> 32); }
__device__ inline int32_t token_at(Place place) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(place));
}

// One row as the block sees it.
struct RowLogits {
  const float* logits;
  int64_t vocab_size;
  // One bit per token: whether the row masks or adjusts it. Null: it does so to none.
  const uint32_t* special = nullptr;
  const RowSampling* sampling = nullptr;  // of a row with special tokens

  __device__ uint32_t key(int64_t token) const {
    if (special == nullptr || (special[token / 32] >> token % 32 & 1) == 0) {
      return key_of(logits[token]);
    }
    return special_key(token);
  }
  __device__ uint32_t special_key(int64_t token) const {
    for (int32_t i = 0; i < sampling->num_masked_tokens; ++i) {
      if (sampling->masked_tokens[i] == token) return 0;
    }
    constexpr float kLargest = 3.402823466e38f;
    const float logit = logits[token];
    const int32_t place = place_of_adjustment(token);
    const bool is_adjusted =
        place < sampling->num_adjustments && sampling->adjustments[place].token == token;
    if (!is_adjusted) return key_of(logit);
    return key_of(
        adjusted_logit(logit > kLargest ? kLargest : logit, sampling->adjustments[place]));
  }
  // The first adjustment of this token or a later one.
  __device__ int32_t place_of_adjustment(int64_t token) const {
    int32_t begin = 0, end = sampling->num_adjustments;
    while (begin < end) {
      const int32_t middle = begin + (end - begin) / 2;
      if (sampling->adjustments[middle].token < token) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
  __device__ Place place(int64_t token) const { return place_of(key(token), token); }
};

// Calls visit(token, key) for the tokens that can be drawn; the block's threads share them.
template <class Visit>
__device__ void for_each_token(const RowLogits& row, Visit visit) {
  constexpr int kAhead = 8;  // loads under way
  const int64_t step = int64_t{blockDim.x};
  for (int64_t first = threadIdx.x; first < row.vocab_size; first += kAhead * step) {
    uint32_t keys[kAhead];
    for (int i = 0; i < kAhead; ++i) {
      const int64_t token = first + i * step;
      keys[i] = token < row.vocab_size ? row.key(token) : 0;
    }
    for (int i = 0; i < kAhead; ++i) {
      if (keys[i] != 0) visit(first + i * step, keys[i]);
    }
  }
}

// exp((value - largest) / temperature).
struct Softmax {
  float largest, temperature;
  __device__ float operator()(uint32_t key) const {
    return device_exp((value_of(key) - largest) / temperature);
  }
};

__device__ inline uint64_t mass_of(float probability) {
  return static_cast<uint64_t>(probability * static_cast<float>(uint64_t{1} << kMassBits));
}

}  // namespace dhs
