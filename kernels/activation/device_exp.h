// device_exp: exp of one float in device code, with the bits of exp16 in vector_exp.h: the same
// operations in the same order. Files that include this are compiled without contraction.
#pragma once

#include "kernels/cuda/cuda.h"

namespace dhs {

__device__ __forceinline__ float device_exp(float x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.0f;
  constexpr float kLog2e = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  if (x < kLowest) return 0.0f;
  float r = x > kHighest ? kHighest : x;
  const float shifted = r * kLog2e + kRounder;
  const float n = shifted - kRounder;
  r = (r - n * kLn2High) - n * kLn2Low;
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  // The low bits of `shifted` are n; moved into the exponent of 1.0 they make 2^n.
  return sum * __uint_as_float((__float_as_uint(shifted) << 23) + 0x3f800000u);
}

}  // namespace dhs
