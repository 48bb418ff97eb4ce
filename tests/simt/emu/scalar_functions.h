// Integer and floating-point device functions of one thread.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "simt/emu/keywords.h"

// ---------------------------------------------------------------------------------------- integers

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1) << (31 - bit);
  return reversed;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return int(int64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

// Bytes of {b, a}, picked by the nibbles of the selector; a nibble's top bit spreads the sign.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> (4 * i) & 0xf;
    unsigned byte = unsigned(bytes >> (8 * (pick & 7))) & 0xff;
    if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// Shifts of the 64 bits {high, low}. The plain forms take the amount modulo 32, the _c forms clamp.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t{high} << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}

inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) {
    sum += int8_t(unsigned(a) >> (8 * i)) * int8_t(unsigned(b) >> (8 * i));
  }
  return sum;
}

// ------------------------------------------------------------------------------- reinterpretation

inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

// ------------------------------------------------------------------------------------- conversions

namespace simt::detail {

// As hardware converts: NaN to 0, what is too large to the nearest end.
template <class T>
T to_integer(double x, double min, double max) {
  if (std::isnan(x)) return 0;
  return x <= min ? T(min) : x >= max ? T(max) : T(x);
}

inline int to_int(double x) { return to_integer<int>(x, -2147483648.0, 2147483647.0); }
inline unsigned to_unsigned(double x) { return to_integer<unsigned>(x, 0.0, 4294967295.0); }

}  // namespace simt::detail

inline int __float2int_rn(float x) { return simt::detail::to_int(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return simt::detail::to_int(std::trunc(x)); }
inline int __float2int_rd(float x) { return simt::detail::to_int(std::floor(x)); }
inline int __float2int_ru(float x) { return simt::detail::to_int(std::ceil(x)); }
inline unsigned __float2uint_rn(float x) { return simt::detail::to_unsigned(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return simt::detail::to_unsigned(std::trunc(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }

// ------------------------------------------------------------------------------------- arithmetic

// Functions whose result is defined to the last bit.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return float(1.0 / std::sqrt(double(x))); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

// Approximations on hardware: tests must allow for their error.
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __saturatef(float x) { return std::isnan(x) || x < 0 ? 0.0f : x > 1 ? 1.0f : x; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

// CUDA's overloads at global scope.
#define DHS_SIMT_MIN_MAX(T)                           \
  constexpr T min(T a, T b) { return b < a ? b : a; } \
  constexpr T max(T a, T b) { return a < b ? b : a; }
DHS_SIMT_MIN_MAX(int)
DHS_SIMT_MIN_MAX(unsigned)
DHS_SIMT_MIN_MAX(long)
DHS_SIMT_MIN_MAX(unsigned long)
DHS_SIMT_MIN_MAX(long long)
DHS_SIMT_MIN_MAX(unsigned long long)
#undef DHS_SIMT_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
