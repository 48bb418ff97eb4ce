// The f32 loops of index_score on VectorF32. Included once by each per-instruction-set source.
#pragma once

#include "kernels/index_score/index_score_tables.h"
#include "kernels/index_score/prefetch.h"
#include "kernels/kv_row/row_decode.h"
#include "kernels/kv_row/vector_f32.h"

namespace dhs {
namespace {

constexpr int kLanes = VectorF32::kLanes;
constexpr int kKeysPerTile =
    kLanes == 16 ? 8 : 4;  // accumulators: twice that, of 32 or 16 registers

const void* load_keys(const IndexKeyLayout& layout, const std::byte* page, int32_t num_keys,
                      float* scratch) {
  const int64_t count = int64_t{num_keys} * layout.index_dim;
  if (layout.format == RowFormat::kF32) return page;
  if (layout.format == RowFormat::kBf16) {
    decode_bf16(page, count, scratch);
  } else {
    decode_f8(page, count, 1.0f, scratch);
  }
  return scratch;
}

// totals[k] += relu(q . keys[k]) * weights, for kVectors vectors of heads, in order.
template <int kKeys, int kVectors>
inline void add_heads(const float* keys, int64_t dim, const float* q, const float* weights,
                      VectorF32* totals) {
  VectorF32 dots[kKeys][kVectors];
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) dots[k][v] = VectorF32::broadcast(0.0f);
  }
  for (int64_t d = 0; d < dim; ++d) {
    VectorF32 heads[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) heads[v] = VectorF32::load(q + (v * dim + d) * kLanes);
#pragma GCC unroll 8
    for (int k = 0; k < kKeys; ++k) {
      const VectorF32 element = VectorF32::broadcast(keys[k * dim + d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) dots[k][v] = multiply_add(element, heads[v], dots[k][v]);
    }
  }
  const VectorF32 zero = VectorF32::broadcast(0.0f);
#pragma GCC unroll 8
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const VectorF32 weight = VectorF32::load(weights + v * kLanes);
      totals[k] = multiply_add(max(zero, dots[k][v]), weight, totals[k]);
    }
  }
}

template <int kKeys>
inline void score_tile(const float* keys, int64_t dim, const IndexQuery& query, float* scores) {
  VectorF32 totals[kKeys];
  for (int k = 0; k < kKeys; ++k) totals[k] = VectorF32::broadcast(0.0f);
  const auto* q = static_cast<const float*>(query.packed);
  int v = 0;
  for (; v + 2 <= query.num_vectors; v += 2) {
    add_heads<kKeys, 2>(keys, dim, q + v * dim * kLanes, query.weights + v * kLanes, totals);
  }
  if (v < query.num_vectors) {
    add_heads<kKeys, 1>(keys, dim, q + v * dim * kLanes, query.weights + v * kLanes, totals);
  }
  for (int k = 0; k < kKeys; ++k) scores[k] = sum_of_lanes(totals[k]);
}

void score_keys(const IndexKeys& page, const IndexQuery& query, float* scores) {
  const auto* keys = static_cast<const float*>(page.keys);
  const int64_t dim = page.dim;
  int k = 0;
  for (; k + kKeysPerTile <= page.num_keys; k += kKeysPerTile) {
    prefetch_next_keys(page, k, kKeysPerTile);
    score_tile<kKeysPerTile>(keys + k * dim, dim, query, scores + k);
  }
  for (; k < page.num_keys; ++k) score_tile<1>(keys + k * dim, dim, query, scores + k);
  if (page.scales == nullptr) return;
  for (k = 0; k < page.num_keys; ++k) scores[k] *= page.scales[k];
}

constexpr IndexScoreTable kTable{kLanes, false, load_keys, score_keys};

}  // namespace
}  // namespace dhs
