#include <immintrin.h>

#include "kernels/top_k/top_k_tables.h"

namespace dhs {

int64_t top_k_collect_avx2(const float* scores, int64_t count, float threshold, int32_t* positions,
                           float* candidates) {
  const __m256 limit = _mm256_set1_ps(threshold);
  int64_t found = 0;
  int64_t s = 0;
  for (; s + 8 <= count; s += 8) {
    const __m256 score = _mm256_loadu_ps(scores + s);
    unsigned mask =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(score, limit, _CMP_GE_OQ)));
    for (; mask != 0; mask &= mask - 1) {  // few scores pass: a loop beats a permutation table
      const int64_t position = s + __builtin_ctz(mask);
      positions[found] = static_cast<int32_t>(position);
      candidates[found++] = scores[position];
    }
  }
  for (; s < count; ++s) {
    if (!(scores[s] >= threshold)) continue;
    positions[found] = static_cast<int32_t>(s);
    candidates[found++] = scores[s];
  }
  return found;
}

}  // namespace dhs
