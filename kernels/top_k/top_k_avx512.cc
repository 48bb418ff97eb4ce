#include <immintrin.h>

#include "kernels/top_k/top_k_tables.h"

namespace dhs {
namespace {

constexpr int kLanes = 16;

}  // namespace

// Compressing in a register and storing the whole vector is many times faster than a compressing
// store on the CPUs where that one is microcoded; the outputs have room for it.
int64_t top_k_collect_avx512(const float* scores, int64_t count, float threshold,
                             int32_t* positions, float* candidates) {
  const __m512 limit = _mm512_set1_ps(threshold);
  const __m512i step = _mm512_set1_epi32(kLanes);
  __m512i lane_positions = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t found = 0;
  const auto append = [&](__m512 score, __mmask16 mask) {
    _mm512_storeu_ps(candidates + found, _mm512_maskz_compress_ps(mask, score));
    _mm512_storeu_si512(positions + found, _mm512_maskz_compress_epi32(mask, lane_positions));
    found += __builtin_popcount(mask);
  };
  int64_t s = 0;
  for (; s + kLanes <= count; s += kLanes) {
    const __m512 score = _mm512_loadu_ps(scores + s);
    const __mmask16 mask = _mm512_cmp_ps_mask(score, limit, _CMP_GE_OQ);
    if (mask != 0) append(score, mask);
    lane_positions = _mm512_add_epi32(lane_positions, step);
  }
  if (s < count) {
    const __mmask16 inside = static_cast<__mmask16>((1u << (count - s)) - 1);
    const __m512 score = _mm512_maskz_loadu_ps(inside, scores + s);
    append(score, _mm512_mask_cmp_ps_mask(inside, score, limit, _CMP_GE_OQ));
  }
  return found;
}

}  // namespace dhs
