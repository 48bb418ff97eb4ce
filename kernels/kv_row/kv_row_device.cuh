// kv_row's codecs for kernels. Every function gives the bits of kv_row.cc for every input: NaNs,
// infinities, subnormals and ties among them. Rounding is to nearest, ties to even; a NaN code
// decodes to the positive quiet NaN (0x7fc00000, in bf16 0x7fc0). Subnormals must not be flushed
// (nvcc's default).
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/kv_row/kv_row.h"

namespace dhs::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// ---- bf16 ---------------------------------------------------------------------------------------

__device__ __forceinline__ float decode_bf16(uint32_t bits) { return __uint_as_float(bits << 16); }

// The two halves of a word: the lower address is the low half.
__device__ __forceinline__ float decode_bf16_low(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float decode_bf16_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// By hand: the hardware's conversion loses a NaN's payload.
__device__ __forceinline__ uint16_t encode_bf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}

// ---- e4m3 -> f32, bf16 --------------------------------------------------------------------------

// Moved into the fields of an f32, an e4m3 value is 2^120 too small, subnormals included.
__device__ __forceinline__ float decode_e4m3(uint32_t code) {
  const uint32_t moved = ((code & 0x80u) << 24) | ((code & 0x7fu) << 20);
  const float value = __fmul_rn(__uint_as_float(moved), 0x1p120f);
  return (code & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : value;
}

// Times the group's scale.
__device__ __forceinline__ float decode_e4m3(uint32_t code, float scale) {
  const float value = __fmul_rn(decode_e4m3(code), scale);
  // Arithmetic on a NaN gives another one on a GPU.
  return (code & 0x7fu) == 0x7fu ? __uint_as_float(0x7fc00000u) : value;
}

// A group's scale for the functions below: a power of two, exact in bf16.
__device__ __forceinline__ __nv_bfloat162 scale_pair(float scale) {
  const auto bits = static_cast<unsigned short>(__float_as_uint(scale) >> 16);
  return {__ushort_as_bfloat16(bits), __ushort_as_bfloat16(bits)};
}

// Bit 7 of every byte that is a NaN code.
__device__ __forceinline__ uint32_t e4m3_nans(uint32_t codes) {
  return ((codes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
}

// Two codes in the upper bytes of the halves -> bf16 pair, times the scale; NaN codes excepted.
__device__ __forceinline__ uint32_t decode_e4m3_halves(uint32_t halves, __nv_bfloat162 scale) {
  // Moved into the fields of a bf16, a value is 2^120 too small, subnormals included.
  const uint32_t moved = (halves & 0x80008000u) | ((halves >> 4) & 0x07f007f0u);
  const __nv_bfloat16 power = __ushort_as_bfloat16(0x7b80);  // 2^120
  const __nv_bfloat162 pair{__ushort_as_bfloat16(static_cast<unsigned short>(moved & 0xffffu)),
                            __ushort_as_bfloat16(static_cast<unsigned short>(moved >> 16))};
  const __nv_bfloat162 value = __hmul2(__hmul2(pair, __nv_bfloat162{power, power}), scale);
  return static_cast<uint32_t>(__bfloat16_as_ushort(value.x)) |
         static_cast<uint32_t>(__bfloat16_as_ushort(value.y)) << 16;
}

// Puts 0x7fc0 where `nans` (as the upper bytes of the halves) has a sign bit.
__device__ __forceinline__ uint32_t with_nans(uint32_t pair, uint32_t nans) {
  const uint32_t mask = ((nans >> 15) & 0x00010001u) * 0xffffu;
  return (pair & ~mask) | (0x7fc07fc0u & mask);
}

// Four codes, the first in the low byte -> two bf16 pairs, the first in the low half, times the
// scale: exact as long as the products are normal in bf16, which holds for every scale that
// encoding gives; beyond bf16's range infinity, as in f32.
__device__ __forceinline__ uint2 decode_e4m3x4(uint32_t codes, __nv_bfloat162 scale) {
  uint2 pairs;
  pairs.x = decode_e4m3_halves(__byte_perm(codes, 0, 0x1404), scale);
  pairs.y = decode_e4m3_halves(__byte_perm(codes, 0, 0x3424), scale);
  const uint32_t nans = e4m3_nans(codes);
  if (nans != 0) {
    pairs.x = with_nans(pairs.x, __byte_perm(nans, 0, 0x1404));
    pairs.y = with_nans(pairs.y, __byte_perm(nans, 0, 0x3424));
  }
  return pairs;
}

// ---- f32 -> e4m3 --------------------------------------------------------------------------------

// max(amax, 1e-4) / 448, rounded up to a power of two. `amax` is no NaN; infinity counts as the
// largest finite value. Without a division: the quotient, rounded to f32, is at most 2^k exactly
// when amax <= 448 * 2^k = 1.75 * 2^(k + 8), so the mantissa decides.
__device__ __forceinline__ float e4m3_scale(float amax) {
  const float limited = fminf(fmaxf(amax, 1e-4f), 3.402823466e+38f);
  const uint32_t rounded_up = __float_as_uint(limited) + (0x7fffffu - 0x600000u);  // beyond 1.75
  return __uint_as_float((rounded_up & 0x7f800000u) - (8u << 23));
}

// 1 / scale, exact: both are powers of two and normal.
__device__ __forceinline__ float inverse_scale(float scale) {
  return __uint_as_float((254u << 23) - __float_as_uint(scale));
}

// e4m3(value * inverse), saturated; NaN stays NaN and keeps its sign.
__device__ __forceinline__ uint8_t encode_e4m3(float value, float inverse) {
  constexpr uint32_t kMinNormal = (127u - 6u) << 23;  // 2^-6 as f32 bits
  const uint32_t sign = (__float_as_uint(value) >> 24) & 0x80u;
  const float scaled = __fmul_rn(fabsf(value), inverse);
  const float limited = scaled > 448.0f ? 448.0f : scaled;
  const uint32_t magnitude = __float_as_uint(limited) & 0x7fffffffu;
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  const uint32_t normal = (rounded >> 20) - ((127u - 7u) << 3);
  // The last mantissa bit of 2^14 is 2^-9, e4m3's smallest step: the addition rounds.
  const uint32_t subnormal = __float_as_uint(__fadd_rn(limited, 16384.0f)) & 0xffu;
  const uint32_t finite = magnitude >= kMinNormal ? normal : subnormal;
  return static_cast<uint8_t>(sign | (magnitude > 0x7f800000u ? 0x7fu : finite));
}

// ---- Stored rows --------------------------------------------------------------------------------

// One stored value of a row's latent, and of its rope.
__device__ __forceinline__ float decode_latent(const RowLayout& layout, const std::byte* row,
                                               int64_t i) {
  if (layout.format == RowFormat::kF32) return reinterpret_cast<const float*>(row)[i];
  if (layout.format == RowFormat::kBf16) {
    return decode_bf16(reinterpret_cast<const uint16_t*>(row)[i]);
  }
  const auto* scales = reinterpret_cast<const float*>(row + layout.scales_offset());
  return decode_e4m3(static_cast<uint32_t>(row[i]), scales[i / kRowScaleGroup]);
}
__device__ __forceinline__ float decode_rope(const RowLayout& layout, const std::byte* row,
                                             int64_t i) {
  const std::byte* rope = row + layout.rope_offset();
  return layout.format == RowFormat::kF32 ? reinterpret_cast<const float*>(rope)[i]
                                          : decode_bf16(reinterpret_cast<const uint16_t*>(rope)[i]);
}

// Dims [8v, 8v + 8) of an fp8 row, latents then rope, as bf16. Both dims are multiples of 8.
__device__ __forceinline__ uint4 decode_fp8_vector(const RowLayout& layout, const std::byte* row,
                                                   int32_t v) {
  const int32_t latent_vectors = layout.latent_dim / 8;
  if (v >= latent_vectors) {
    return reinterpret_cast<const uint4*>(row + layout.rope_offset())[v - latent_vectors];
  }
  const auto* scales = reinterpret_cast<const float*>(row + layout.scales_offset());
  const __nv_bfloat162 scale = scale_pair(scales[v * 8 / kRowScaleGroup]);
  const uint2 codes = reinterpret_cast<const uint2*>(row)[v];
  const uint2 low = decode_e4m3x4(codes.x, scale);
  const uint2 high = decode_e4m3x4(codes.y, scale);
  return uint4{low.x, low.y, high.x, high.y};
}

}  // namespace dhs::cuda
