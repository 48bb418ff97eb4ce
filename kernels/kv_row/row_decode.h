// Stored elements -> f32 (or bf16) with the instruction set of the including source; same values as
// the codecs of tensor.h, NaNs included. Everything is in an unnamed namespace, as in vector_f32.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "dhisparse/tensor.h"

namespace dhs {
namespace {

#if defined(__AVX512F__)
inline __m512 decode_bf16_lanes(const void* source) {
  const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(source));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
// Moved into the fields of an f16, an e4m3 value is 2^8 too small, subnormals included.
inline __m512 decode_f8_lanes(const void* source) {
  const __m128i codes = _mm_loadu_si128(static_cast<const __m128i*>(source));
  const __m256i wide = _mm256_cvtepu8_epi16(codes);
  const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7f)), 7);
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
  const __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f << 7));
  const __m256i half = _mm256_or_si256(_mm256_or_si256(magnitude, sign), nan);
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
}
inline void decode_bf16(const void* source, int64_t count, float* target) {
  const auto* bytes = static_cast<const std::byte*>(source);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) _mm512_storeu_ps(target + i, decode_bf16_lanes(bytes + 2 * i));
  convert_to_f32(DType::kBf16, bytes + 2 * i, count - i, target + i);
}
inline void decode_f8(const void* source, int64_t count, float scale, float* target) {
  const auto* bytes = static_cast<const std::byte*>(source);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(target + i, _mm512_mul_ps(decode_f8_lanes(bytes + i), _mm512_set1_ps(scale)));
  }
  convert_to_f32(DType::kF8E4m3, bytes + i, count - i, target + i);
  for (; i < count; ++i) target[i] *= scale;
}
#elif defined(__AVX2__)
inline __m256 decode_bf16_lanes(const void* source) {
  const __m128i bits = _mm_loadu_si128(static_cast<const __m128i*>(source));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m256 decode_f8_lanes(const void* source) {
  const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(source)));
  const __m128i magnitude = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7f)), 7);
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
  const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f << 7));
  const __m128i half = _mm_or_si128(_mm_or_si128(magnitude, sign), nan);
  return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
}
inline void decode_bf16(const void* source, int64_t count, float* target) {
  const auto* bytes = static_cast<const std::byte*>(source);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(target + i, decode_bf16_lanes(bytes + 2 * i));
  convert_to_f32(DType::kBf16, bytes + 2 * i, count - i, target + i);
}
inline void decode_f8(const void* source, int64_t count, float scale, float* target) {
  const auto* bytes = static_cast<const std::byte*>(source);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(target + i, _mm256_mul_ps(decode_f8_lanes(bytes + i), _mm256_set1_ps(scale)));
  }
  convert_to_f32(DType::kF8E4m3, bytes + i, count - i, target + i);
  for (; i < count; ++i) target[i] *= scale;
}
#else
inline void decode_bf16(const void* source, int64_t count, float* target) {
  convert_to_f32(DType::kBf16, source, count, target);
}
inline void decode_f8(const void* source, int64_t count, float scale, float* target) {
  convert_to_f32(DType::kF8E4m3, source, count, target);
  for (int64_t i = 0; i < count; ++i) target[i] *= scale;
}
#endif

}  // namespace
}  // namespace dhs
