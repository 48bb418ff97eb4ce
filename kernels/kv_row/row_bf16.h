// bf16 pairs and exact e4m3 -> bf16 conversion, for sources compiled with AVX-512 BF16. Everything
// is in an unnamed namespace, as in vector_f32.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "dhisparse/tensor.h"

namespace dhs {
namespace {

// acc + a.first * b.first + a.second * b.second in every 32-bit lane. The instruction takes and
// gives subnormals as zero.
inline __m512 dot_pairs(__m512 acc, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}

// 32 e4m3 codes, times a power of two: exact in bf16 as long as the product stays normal there.
// Only exponents move; e4m3's subnormals, which are normal in bf16, come from a table.
class F8ToBf16 {
 public:
  explicit F8ToBf16(float scale) {
    int32_t bits;
    __builtin_memcpy(&bits, &scale, sizeof(bits));
    scale_exponent_ = _mm512_set1_epi16(static_cast<int16_t>(((bits >> 23) - 127) * 128));
  }

  __m512i operator()(const void* source) const {
    // 0 and 1..7 times 2^-9 in bf16.
    const __m512i subnormals = _mm512_broadcast_i32x4(
        _mm_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
    const __m512i bias = _mm512_set1_epi16((127 - 7) * 128);
    const __m256i codes = _mm256_loadu_si256(static_cast<const __m256i*>(source));
    const __m512i wide = _mm512_cvtepu8_epi16(codes);
    const __m512i magnitude = _mm512_and_si512(wide, _mm512_set1_epi16(0x7f));
    const __mmask32 is_subnormal = _mm512_cmplt_epi16_mask(magnitude, _mm512_set1_epi16(8));
    const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
    __m512i value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), bias);
    value = _mm512_mask_permutexvar_epi16(value, is_subnormal, magnitude, subnormals);
    value = _mm512_mask_add_epi16(value, _mm512_test_epi16_mask(magnitude, magnitude), value,
                                  scale_exponent_);
    value = _mm512_mask_mov_epi16(value, is_nan, _mm512_set1_epi16(0x7fc0));
    return _mm512_or_si512(value, _mm512_slli_epi16(_mm512_srli_epi16(wide, 7), 15));
  }

 private:
  __m512i scale_exponent_;
};

// count codes -> bf16, times `scale`, a power of two.
inline void f8_to_bf16(const void* source, int64_t count, float scale, Bf16* target) {
  const F8ToBf16 convert(scale);
  const auto* codes = static_cast<const std::byte*>(source);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) _mm512_storeu_si512(target + i, convert(codes + i));
  if (i == count) return;
  alignas(64) std::byte last[32] = {};
  __builtin_memcpy(last, codes + i, static_cast<size_t>(count - i));
  const __mmask32 inside = static_cast<__mmask32>((uint64_t{1} << (count - i)) - 1);
  _mm512_mask_storeu_epi16(target + i, inside, convert(last));
}

}  // namespace
}  // namespace dhs
