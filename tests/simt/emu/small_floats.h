// bf16 and half functions that the toolkit's headers declare for device code only.
#pragma once

#include <cmath>

#include "simt/emu/keywords.h"

// One rounding, as the fused instructions have: the products of bf16 and half are exact in double,
// and so, but for the rarest cases, are these sums.
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  const double sum = double(__bfloat162float(a)) * __bfloat162float(b) + __bfloat162float(c);
  return __double2bfloat16(sum);
}

inline __half __hfma(__half a, __half b, __half c) {
  return __double2half(double(__half2float(a)) * __half2float(b) + __half2float(c));
}

inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}

inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
