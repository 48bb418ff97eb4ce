// e4m3: the bits of a quantised value and of its scale, one source for every backend: constexpr,
// so that nvcc compiles it for the device too. Integer and exact float operations only.
#pragma once

#include <bit>
#include <cstdint>

#include "dhisparse/tensor.h"

namespace dhs::e4m3 {

inline constexpr uint32_t kInfinityBits = 0x7f800000u;
inline constexpr F8E4m3 kNan = 0x7f;

constexpr bool is_finite(float value) {
  return (std::bit_cast<uint32_t>(value) & 0x7fffffffu) < kInfinityBits;
}

// The same bits as f32_to_f8e4m3: to nearest, ties to even, saturating; NaN stays NaN.
constexpr F8E4m3 encode(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinityBits) return static_cast<F8E4m3>(sign | kNan);
  if (magnitude >= std::bit_cast<uint32_t>(448.0f)) return static_cast<F8E4m3>(sign | 0x7eu);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {
    // Steps of 2^-9, which is the last place of 2^14: the adder rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    const uint32_t steps = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p14f);
    return static_cast<F8E4m3>(sign | steps);
  }
  const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  constexpr uint32_t kRebias = (127 - 7) << 3;
  return static_cast<F8E4m3>(sign | ((rounded >> 20) - kRebias));
}

// The same value as f8e4m3_to_f32.
constexpr float decode(F8E4m3 bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80) << 24;
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == kNan) return std::bit_cast<float>(sign | 0x7fc00000u);
  // As an f32 with e4m3's exponent field it is 2^-120 of the value, below its normals too.
  return std::bit_cast<float>(sign | magnitude << 20) * 0x1p120f;
}

// The power of two that quantises a block whose largest magnitude is `amax`: max(amax, 1e-4) / 448
// rounded up. NaN when amax is not finite.
constexpr float block_scale(float amax) {
  if (!is_finite(amax)) return std::bit_cast<float>(0x7fc00000u);
  const uint32_t bits = std::bit_cast<uint32_t>(amax > 1e-4f ? amax : 1e-4f);
  // amax = f 2^e with f in [1, 2), and 448 = 1.75 2^8.
  const uint32_t exponent = bits >> 23;
  const uint32_t rounds_up = (bits & 0x7fffffu) > 0x600000u ? 1 : 0;
  return std::bit_cast<float>((exponent - 8 + rounds_up) << 23);
}

// 1 / scale for a scale that block_scale gave: exact; NaN for NaN.
constexpr float inverse_scale(float scale) { return 1.0f / scale; }

// The larger magnitude; infinite as soon as one value is not finite.
constexpr float larger_magnitude(float amax, float value) {
  const float magnitude = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  if (!is_finite(value)) return std::bit_cast<float>(kInfinityBits);
  return magnitude > amax ? magnitude : amax;
}

// One value of a block: 0 in a block that is not finite, whose scale says so.
constexpr F8E4m3 quantized(float value, float inverse) {
  return is_finite(inverse) ? encode(value * inverse) : static_cast<F8E4m3>(0);
}

}  // namespace dhs::e4m3
