// vector_exp: exp of 16 floats, written in the compiler's vector extension so that one source
// serves every instruction set and gives the same bits on all of them (no fused multiply-add, fixed
// order).
//
// Relative error at most 2e-7 for results between 2^-126 and 2^127. Arguments are clamped to
// [-87.3, 88.0]; below the clamp the result is 0 exactly, so that impossible events stay
// impossible. exp(0) is exactly 1. NaN gives NaN. Method: x = n ln 2 + r with |r| <= ln 2 / 2,
// Taylor polynomial of degree 7 in r, scaled by 2^n.
#pragma once

#include <cstdint>
#include <cstring>

namespace dhs {

using Float16 = float __attribute__((vector_size(64)));
using Int16 = int32_t __attribute__((vector_size(64)));
inline constexpr int kFloat16Lanes = 16;

// In place. Inlined into callers compiled for each instruction set; by reference because vectors
// cross real calls differently on each.
[[gnu::always_inline]] inline void exp16(Float16& x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.0f;
  constexpr float kLog2e = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // 9 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Int16 is_zero = x < kLowest;
  Float16 r = is_zero ? Float16{} + kLowest : x;
  r = r > kHighest ? Float16{} + kHighest : r;
  const Float16 shifted = r * kLog2e + kRounder;
  const Float16 n = shifted - kRounder;
  r = (r - n * kLn2High) - n * kLn2Low;
  Float16 sum = Float16{} + 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  // The low bits of `shifted` are n; moved into the exponent of 1.0 they make 2^n.
  Int16 bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 23) + 0x3f800000;
  Float16 scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  x = is_zero ? Float16{} : sum * scale;
}

}  // namespace dhs
