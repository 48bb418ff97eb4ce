// One vector of f32, of the widest instruction set this translation unit is compiled for, and the
// few operations the row kernels need. Included by per-instruction-set sources only: everything is
// in an unnamed namespace, so that no two sources can share a function compiled for one of them.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace dhs {
namespace {

// Rounds once per operation except multiply_add, which rounds once where the CPU has a fused form
// and twice on plain x86-64.
#if defined(__AVX512F__)
struct VectorF32 {
  static constexpr int kLanes = 16;
  __m512 v;

  static VectorF32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static VectorF32 broadcast(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
};
inline VectorF32 operator+(VectorF32 a, VectorF32 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline VectorF32 operator-(VectorF32 a, VectorF32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline VectorF32 operator*(VectorF32 a, VectorF32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline VectorF32 operator/(VectorF32 a, VectorF32 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline VectorF32 max(VectorF32 a, VectorF32 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline VectorF32 multiply_add(VectorF32 a, VectorF32 b, VectorF32 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline VectorF32 round_to_integer(VectorF32 a) {
  return {_mm512_cvtepi32_ps(_mm512_cvtps_epi32(a.v))};
}
// a * 2^n for an integral n that keeps the result normal.
inline VectorF32 scale_by_power(VectorF32 a, VectorF32 n) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), exponent))};
}
inline float sum_of_lanes(VectorF32 a) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
#elif defined(__AVX2__)
struct VectorF32 {
  static constexpr int kLanes = 8;
  __m256 v;

  static VectorF32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static VectorF32 broadcast(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
};
inline VectorF32 operator+(VectorF32 a, VectorF32 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline VectorF32 operator-(VectorF32 a, VectorF32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline VectorF32 operator*(VectorF32 a, VectorF32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline VectorF32 operator/(VectorF32 a, VectorF32 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline VectorF32 max(VectorF32 a, VectorF32 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline VectorF32 multiply_add(VectorF32 a, VectorF32 b, VectorF32 c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline VectorF32 round_to_integer(VectorF32 a) {
  return {_mm256_cvtepi32_ps(_mm256_cvtps_epi32(a.v))};
}
inline VectorF32 scale_by_power(VectorF32 a, VectorF32 n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.v), exponent))};
}
inline float sum_of_lanes(VectorF32 a) {
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
#else
struct VectorF32 {
  static constexpr int kLanes = 4;
  __m128 v;

  static VectorF32 load(const float* p) { return {_mm_loadu_ps(p)}; }
  static VectorF32 broadcast(float x) { return {_mm_set1_ps(x)}; }
  void store(float* p) const { _mm_storeu_ps(p, v); }
};
inline VectorF32 operator+(VectorF32 a, VectorF32 b) { return {_mm_add_ps(a.v, b.v)}; }
inline VectorF32 operator-(VectorF32 a, VectorF32 b) { return {_mm_sub_ps(a.v, b.v)}; }
inline VectorF32 operator*(VectorF32 a, VectorF32 b) { return {_mm_mul_ps(a.v, b.v)}; }
inline VectorF32 operator/(VectorF32 a, VectorF32 b) { return {_mm_div_ps(a.v, b.v)}; }
inline VectorF32 max(VectorF32 a, VectorF32 b) { return {_mm_max_ps(a.v, b.v)}; }
inline VectorF32 multiply_add(VectorF32 a, VectorF32 b, VectorF32 c) { return a * b + c; }
inline VectorF32 round_to_integer(VectorF32 a) { return {_mm_cvtepi32_ps(_mm_cvtps_epi32(a.v))}; }
inline VectorF32 scale_by_power(VectorF32 a, VectorF32 n) {
  const __m128i exponent = _mm_slli_epi32(_mm_cvtps_epi32(n.v), 23);
  return {_mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(a.v), exponent))};
}
inline float sum_of_lanes(VectorF32 a) {
  const __m128 pair = _mm_add_ps(a.v, _mm_movehl_ps(a.v, a.v));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
#endif

// e^x for x <= 0, relative error below 2e-7; anything below -87.3 gives about 1e-38. Cody-Waite
// reduction to |r| <= ln(2) / 2, then the Taylor series of degree 7 (remainder 6e-9).
inline VectorF32 exp_nonpositive(VectorF32 x) {
  const auto constant = [](float value) { return VectorF32::broadcast(value); };
  x = max(constant(-87.3f), x);
  const VectorF32 n = round_to_integer(x * constant(1.44269504f));
  VectorF32 r = multiply_add(n, constant(-0.693359375f), x);
  r = multiply_add(n, constant(2.12194440e-4f), r);
  VectorF32 p = constant(1.0f / 5040);
  p = multiply_add(p, r, constant(1.0f / 720));
  p = multiply_add(p, r, constant(1.0f / 120));
  p = multiply_add(p, r, constant(1.0f / 24));
  p = multiply_add(p, r, constant(1.0f / 6));
  p = multiply_add(p, r, constant(0.5f));
  p = multiply_add(p, r, constant(1.0f));
  p = multiply_add(p, r, constant(1.0f));
  return scale_by_power(p, n);
}

}  // namespace
}  // namespace dhs
