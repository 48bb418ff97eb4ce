// f8_pairs: four e4m3 in a register to two bf16 pairs, exactly.
//
// The order within the four is fixed but not rising: (0, 2) and (1, 3). Rows and weights are turned
// alike, and a sum over k does not care.
#pragma once

#include "kernels/cuda/cuda.h"

namespace dhs::cuda {

// x * 2^120 for both halves. Exact for the values below.
__device__ __forceinline__ uint32_t scale_bf16_pair_up(uint32_t pair) {
#if defined(__CUDACC__)
  uint32_t scaled;
  // bf16 0x7b80 is 2^120; adding -0 keeps the sign of zeros.
  asm("fma.rn.bf16x2 %0, %1, %2, %3;"
      : "=r"(scaled)
      : "r"(pair), "r"(0x7b807b80u), "r"(0x80008000u));
  return scaled;
#else
  auto scale = [](uint32_t bf16) {
    return __float_as_uint(__uint_as_float(bf16 << 16) * 0x1p120f) >> 16;
  };
  return scale(pair & 0xffffu) | scale(pair >> 16) << 16;
#endif
}

// The upper byte of each half. An e4m3's bits in a bf16's place are 2^-120 of the value, below the
// normal e4m3s too. Its NaN is not met: quantising leaves none.
__device__ __forceinline__ uint32_t f8_upper_bytes_to_bf16(uint32_t bytes) {
  return scale_bf16_pair_up((bytes >> 4 & 0x07f007f0u) | (bytes & 0x80008000u));
}

__device__ __forceinline__ void f8_to_bf16_pairs(uint32_t four, uint32_t& even, uint32_t& odd) {
  even = f8_upper_bytes_to_bf16(four << 8);
  odd = f8_upper_bytes_to_bf16(four);
}

}  // namespace dhs::cuda
