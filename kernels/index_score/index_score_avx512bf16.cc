#include <immintrin.h>

#include "kernels/index_score/index_score_tables.h"
#include "kernels/index_score/prefetch.h"
#include "kernels/kv_row/row_bf16.h"
#include "kernels/kv_row/vector_f32.h"

namespace dhs {
namespace {

constexpr int kLanes = VectorF32::kLanes;
constexpr int kKeysPerTile = 8;

const void* load_keys(const IndexKeyLayout& layout, const std::byte* page, int32_t num_keys,
                      float* scratch) {
  if (layout.format == RowFormat::kBf16) return page;
  f8_to_bf16(page, int64_t{num_keys} * layout.index_dim, 1.0f, reinterpret_cast<Bf16*>(scratch));
  return scratch;
}

// totals[k] += relu(q . keys[k]) * weights, for kVectors vectors of heads, in order. Keys and q
// come as pairs of dims.
template <int kKeys, int kVectors>
inline void add_heads(const int32_t* keys, int64_t num_pairs, const int32_t* q,
                      const float* weights, VectorF32* totals) {
  __m512 dots[kKeys][kVectors];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) dots[k][v] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < num_pairs; ++p) {
    __m512i heads[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      heads[v] = _mm512_loadu_si512(q + (v * num_pairs + p) * kLanes);
    }
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) {
      const __m512i pair = _mm512_set1_epi32(keys[k * num_pairs + p]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) dots[k][v] = dot_pairs(dots[k][v], heads[v], pair);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const VectorF32 weight = VectorF32::load(weights + v * kLanes);
      const VectorF32 relu = max(VectorF32::broadcast(0.0f), VectorF32{dots[k][v]});
      totals[k] = multiply_add(relu, weight, totals[k]);
    }
  }
}

template <int kKeys>
inline void score_tile(const int32_t* keys, int64_t num_pairs, const IndexQuery& query,
                       float* scores) {
  VectorF32 totals[kKeys];
  for (int k = 0; k < kKeys; ++k) totals[k] = VectorF32::broadcast(0.0f);
  const auto* q = static_cast<const int32_t*>(query.packed);
  const int64_t stride = num_pairs * kLanes;
  int v = 0;
  for (; v + 2 <= query.num_vectors; v += 2) {
    add_heads<kKeys, 2>(keys, num_pairs, q + v * stride, query.weights + v * kLanes, totals);
  }
  if (v < query.num_vectors) {
    add_heads<kKeys, 1>(keys, num_pairs, q + v * stride, query.weights + v * kLanes, totals);
  }
  for (int k = 0; k < kKeys; ++k) scores[k] = sum_of_lanes(totals[k]);
}

void score_keys(const IndexKeys& page, const IndexQuery& query, float* scores) {
  const auto* keys = static_cast<const int32_t*>(page.keys);
  const int64_t num_pairs = page.dim / 2;
  int k = 0;
  for (; k + kKeysPerTile <= page.num_keys; k += kKeysPerTile) {
    prefetch_next_keys(page, k, kKeysPerTile);
    score_tile<kKeysPerTile>(keys + k * num_pairs, num_pairs, query, scores + k);
  }
  for (; k < page.num_keys; ++k) score_tile<1>(keys + k * num_pairs, num_pairs, query, scores + k);
  if (page.scales == nullptr) return;
  for (k = 0; k < page.num_keys; ++k) scores[k] *= page.scales[k];
}

}  // namespace

IndexScoreTable index_score_table_avx512bf16() { return {kLanes, true, load_keys, score_keys}; }

}  // namespace dhs
