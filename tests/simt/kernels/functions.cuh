// Device functions, each with results that a test can work out.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::functions {

inline constexpr int kNumIntegerResults = 24;
inline constexpr int kNumFloatResults = 12;

// One thread.
__global__ void integers(unsigned a, unsigned b, uint64_t* results);
__global__ void floats(float a, float b, float* results);

// One warp: for each lane, what the collectives of its values say.
struct WarpResults {
  int from_lane_3;
  float up_1;
  double down_1;
  int64_t xor_1;
  unsigned both_of_bf16;
  int min_signed;
  int max_signed;
  unsigned min_unsigned;
  unsigned max_unsigned;
  unsigned all_and;
  unsigned all_or;
  unsigned all_xor;
  unsigned same_modulo_5;
  int segment_sum;
};
__global__ void collectives(WarpResults* results);

// Any number of threads; each adds to every counter once.
struct Counters {
  int sum;
  unsigned wrapping_sum;
  unsigned long long wide_sum;
  float float_sum;
  int least;
  int greatest;
  unsigned bits;
  unsigned common_bits;
  unsigned parity;
  int last;
  int by_swapping;
};
__global__ void atomics(Counters* counters);

// y = x, 16 bytes a thread, with every kind of load and store.
__global__ void hinted_copy(const uint4* x, uint4* y);

}  // namespace simt::functions
