#include <immintrin.h>

#include "kernels/kv_row/row_bf16.h"
#include "kernels/kv_row/vector_f32.h"
#include "kernels/sparse_attention/prefetch.h"
#include "kernels/sparse_attention/sparse_attention_tables.h"

namespace dhs {
namespace {

constexpr int kLanes = VectorF32::kLanes;
constexpr int kBlock = 8;  // rows, or dims, per register block; times 2 vectors
constexpr int kTilePairs = kAttentionTileRows / 2;
constexpr int kUnitsPerScoreBlock = 8;  // a block of scores costs about as much as 8 of outputs
constexpr int kVectorFloats = kAttentionTileRows * kLanes;
constexpr int kVectorPairs = kTilePairs * kLanes;

void load_row(const RowLayout& layout, const std::byte* row, Bf16* target) {
  if (layout.format == RowFormat::kBf16) {
    __builtin_memcpy(target, row, static_cast<size_t>(layout.latent_dim + layout.rope_dim) * 2);
    return;
  }
  const auto* scales = reinterpret_cast<const float*>(row + layout.scales_offset());
  for (int64_t d = 0; d < layout.latent_dim; d += kRowScaleGroup) {
    const int64_t left = layout.latent_dim - d;
    f8_to_bf16(row + d, left < kRowScaleGroup ? left : kRowScaleGroup, scales[d / kRowScaleGroup],
               target + d);
  }
  __builtin_memcpy(target + layout.latent_dim, row + layout.rope_offset(),
                   static_cast<size_t>(layout.rope_dim) * 2);
}

// Puts the latents of rows 2i and 2i+1 side by side; the partner of an odd last row is zero.
void interleave_rows(const AttentionTile& tile, const Bf16* rows, int32_t* pairs) {
  const int64_t dims = tile.latent_dim + tile.rope_dim;
  for (int32_t i = 0; i < tile.num_rows; i += 2) {
    const Bf16* first = rows + i * dims;
    const bool has_second = i + 1 < tile.num_rows;
    for (int64_t d = 0; d < tile.latent_dim; d += kLanes) {
      const __m512i low =
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + d)));
      __m512i high = _mm512_setzero_si512();
      if (has_second) {
        high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
                                     reinterpret_cast<const __m256i*>(first + dims + d))),
                                 16);
      }
      _mm512_store_si512(pairs + d / kLanes * kVectorPairs + i / 2 * kLanes,
                         _mm512_or_si512(low, high));
    }
  }
}

void load_tile(const RowLayout& layout, const std::byte* const* rows, const AttentionTile& tile,
               void* tile_rows, void* tile_pairs) {
  const int64_t dims = tile.latent_dim + tile.rope_dim;
  auto* target = static_cast<Bf16*>(tile_rows);
  for (int32_t i = 0; i < tile.num_rows; ++i) load_row(layout, rows[i], target + i * dims);
  interleave_rows(tile, target, static_cast<int32_t*>(tile_pairs));
}

// scores[v][i] = q[v] . rows[i] * scale for kRows rows and kVectors vectors of heads.
template <int kRows, int kVectors>
inline void score_block(const int32_t* rows, int64_t num_pairs, const int32_t* q, float scale,
                        float* scores) {
  __m512 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[i][v] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < num_pairs; ++p) {
    __m512i heads[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      heads[v] = _mm512_loadu_si512(q + (v * num_pairs + p) * kLanes);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m512i pair = _mm512_set1_epi32(rows[i * num_pairs + p]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] = dot_pairs(acc[i][v], heads[v], pair);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scaled = _mm512_mul_ps(acc[i][v], _mm512_set1_ps(scale));
      _mm512_storeu_ps(scores + v * kVectorFloats + i * kLanes, scaled);
    }
  }
}

// exp(score - max) as bf16 bits in the low half of every lane.
inline __m512i weight_bits(const float* score, VectorF32 max_score) {
  const VectorF32 weight = exp_nonpositive(VectorF32::load(score) - max_score);
  return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(weight.v));
}

// Scores -> weights as pairs of rows; updates max and sum, and returns what old sums are to be
// scaled by. The sum is of the rounded weights, so that the weights of a head add up to one
// exactly.
inline VectorF32 softmax(int32_t num_rows, const float* scores, int32_t* weights, float* max_so_far,
                         float* sum) {
  const VectorF32 old_max = VectorF32::load(max_so_far);
  VectorF32 new_max = old_max;
  for (int32_t i = 0; i < num_rows; ++i) {
    new_max = max(new_max, VectorF32::load(scores + i * kLanes));
  }
  const VectorF32 rescale = exp_nonpositive(old_max - new_max);
  VectorF32 total = VectorF32::load(sum) * rescale;
  for (int32_t i = 0; i < num_rows; i += 2) {
    const __m512i low = weight_bits(scores + i * kLanes, new_max);
    __m512i high = _mm512_setzero_si512();
    if (i + 1 < num_rows) {
      high = _mm512_slli_epi32(weight_bits(scores + (i + 1) * kLanes, new_max), 16);
    }
    total = total + VectorF32{_mm512_castsi512_ps(_mm512_slli_epi32(low, 16))};
    total = total + VectorF32{_mm512_castsi512_ps(high)};
    _mm512_storeu_si512(weights + i / 2 * kLanes, _mm512_or_si512(low, high));
  }
  new_max.store(max_so_far);
  total.store(sum);
  return rescale;
}

// Where a register block of the output lives: element [v][d][lane] at v * stride + d * kLanes +
// lane.
struct Outputs {
  float* data;
  int64_t stride;
  const VectorF32* rescale;  // [kVectors] what the sums of earlier tiles are multiplied by
};

// out[v][d] = out[v][d] * rescale[v] + sum_i weights[v][i] * rows[i][d] for kBlock dims.
template <int kVectors>
inline void accumulate_block(int32_t num_pairs, const int32_t* pairs, const int32_t* weights,
                             const Outputs& out) {
  __m512 acc[kBlock][kVectors];
#pragma GCC unroll 8
  for (int d = 0; d < kBlock; ++d) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      acc[d][v] =
          _mm512_mul_ps(_mm512_loadu_ps(out.data + v * out.stride + d * kLanes), out.rescale[v].v);
    }
  }
  for (int32_t p = 0; p < num_pairs; ++p) {
    __m512i weight[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      weight[v] = _mm512_loadu_si512(weights + v * kVectorPairs + p * kLanes);
    }
#pragma GCC unroll 8
    for (int d = 0; d < kBlock; ++d) {
      const __m512i pair = _mm512_set1_epi32(pairs[p * kLanes + d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[d][v] = dot_pairs(acc[d][v], weight[v], pair);
    }
  }
#pragma GCC unroll 8
  for (int d = 0; d < kBlock; ++d) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(out.data + v * out.stride + d * kLanes, acc[d][v]);
    }
  }
}

template <int kVectors>
inline void attend_vectors(const AttentionTile& tile, const AttentionHeads& heads, int32_t first,
                           NextRowsPrefetch& prefetch) {
  alignas(64) float scores[kVectors * kVectorFloats];
  alignas(64) int32_t weights[kVectors * kVectorPairs];
  const auto* rows = static_cast<const int32_t*>(tile.rows);
  const int64_t num_pairs = (tile.latent_dim + tile.rope_dim) / 2;
  const int32_t* q = static_cast<const int32_t*>(heads.q) + first * num_pairs * kLanes;
  int32_t i = 0;
  for (; i + kBlock <= tile.num_rows; i += kBlock) {
    prefetch.advance(kUnitsPerScoreBlock);
    score_block<kBlock, kVectors>(rows + i * num_pairs, num_pairs, q, tile.softmax_scale,
                                  scores + i * kLanes);
  }
  for (; i < tile.num_rows; ++i) {
    score_block<1, kVectors>(rows + i * num_pairs, num_pairs, q, tile.softmax_scale,
                             scores + i * kLanes);
  }
  VectorF32 rescale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const int32_t lane = (first + v) * kLanes;
    rescale[v] = softmax(tile.num_rows, scores + v * kVectorFloats, weights + v * kVectorPairs,
                         heads.max + lane, heads.sum + lane);
  }
  const int64_t out_stride = int64_t{heads.out_dims} * kLanes;
  float* out = heads.out + first * out_stride;
  for (int32_t d = 0; d < heads.out_dims; d += kBlock) {
    prefetch.advance(1);
    const int32_t* pairs =
        static_cast<const int32_t*>(tile.pairs) + d / kLanes * kVectorPairs + d % kLanes;
    accumulate_block<kVectors>((tile.num_rows + 1) / 2, pairs, weights,
                               {out + d * kLanes, out_stride, rescale});
  }
}

void attend_tile(const AttentionTile& tile, const AttentionHeads& heads) {
  const int64_t num_groups = (heads.num_vectors + 1) / 2;
  const int64_t units_per_group =
      (kAttentionTileRows * kUnitsPerScoreBlock + heads.out_dims) / kBlock;
  NextRowsPrefetch prefetch(tile, num_groups * units_per_group);
  int32_t v = 0;
  for (; v + 2 <= heads.num_vectors; v += 2) attend_vectors<2>(tile, heads, v, prefetch);
  if (v < heads.num_vectors) attend_vectors<1>(tile, heads, v, prefetch);
}

}  // namespace

AttentionTable attention_table_avx512bf16() { return {kLanes, true, load_tile, attend_tile}; }

}  // namespace dhs
