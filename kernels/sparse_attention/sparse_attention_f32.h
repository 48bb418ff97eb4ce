// The f32 loops of sparse_attention on VectorF32. Included once by each per-instruction-set source.
#pragma once

#include "kernels/kv_row/row_decode.h"
#include "kernels/kv_row/vector_f32.h"
#include "kernels/sparse_attention/prefetch.h"
#include "kernels/sparse_attention/sparse_attention_tables.h"

namespace dhs {
namespace {

constexpr int kLanes = VectorF32::kLanes;
constexpr int kBlock = kLanes == 16 ? 8 : 4;  // rows, or dims, per register block; times 2 vectors
constexpr int kUnitsPerScoreBlock = 8;  // a block of scores costs about as much as 8 of outputs
constexpr int kVectorFloats = kAttentionTileRows * kLanes;

void decode_elements(RowFormat format, const std::byte* source, int64_t count, float* target) {
  if (format == RowFormat::kF32) {
    __builtin_memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
  } else {
    decode_bf16(source, count, target);
  }
}

void load_tile(const RowLayout& layout, const std::byte* const* rows, const AttentionTile& tile,
               void* tile_rows, void*) {
  const int64_t dims = tile.latent_dim + tile.rope_dim;
  const bool fp8 = layout.format == RowFormat::kFp8;
  const int64_t scales_offset = layout.scales_offset();
  const int64_t rope_offset = layout.rope_offset();
  for (int32_t i = 0; i < tile.num_rows; ++i) {
    float* target = static_cast<float*>(tile_rows) + i * dims;
    const auto* scales = reinterpret_cast<const float*>(rows[i] + scales_offset);
    for (int64_t d = 0; fp8 && d < tile.latent_dim; d += kRowScaleGroup) {
      const int64_t left = tile.latent_dim - d;
      decode_f8(rows[i] + d, left < kRowScaleGroup ? left : kRowScaleGroup,
                scales[d / kRowScaleGroup], target + d);
    }
    if (!fp8) decode_elements(layout.format, rows[i], tile.latent_dim, target);
    decode_elements(layout.format, rows[i] + rope_offset, tile.rope_dim, target + tile.latent_dim);
  }
}

// scores[v][i] = q[v] . rows[i] * scale for kRows rows and kVectors vectors of heads.
template <int kRows, int kVectors>
inline void score_block(const float* rows, int64_t dims, const float* q, float scale,
                        float* scores) {
  VectorF32 acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[i][v] = VectorF32::broadcast(0.0f);
  }
  for (int64_t d = 0; d < dims; ++d) {
    VectorF32 heads[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) heads[v] = VectorF32::load(q + (v * dims + d) * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const VectorF32 element = VectorF32::broadcast(rows[i * dims + d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[i][v] = multiply_add(element, heads[v], acc[i][v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      (acc[i][v] * VectorF32::broadcast(scale)).store(scores + v * kVectorFloats + i * kLanes);
    }
  }
}

// Scores -> weights in place; updates max and sum, and returns what old sums are to be scaled by.
inline VectorF32 softmax(int32_t num_rows, float* scores, float* max_so_far, float* sum) {
  const VectorF32 old_max = VectorF32::load(max_so_far);
  VectorF32 new_max = old_max;
  for (int32_t i = 0; i < num_rows; ++i) {
    new_max = max(new_max, VectorF32::load(scores + i * kLanes));
  }
  const VectorF32 rescale = exp_nonpositive(old_max - new_max);
  VectorF32 total = VectorF32::load(sum) * rescale;
  for (int32_t i = 0; i < num_rows; ++i) {
    const VectorF32 weight = exp_nonpositive(VectorF32::load(scores + i * kLanes) - new_max);
    weight.store(scores + i * kLanes);
    total = total + weight;
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

// out[v][d] = out[v][d] * rescale[v] + sum_i weights[v][i] * rows[i][d] for kDims dims.
template <int kDims, int kVectors>
inline void accumulate_block(const AttentionTile& tile, const float* rows, const float* weights,
                             const Outputs& out) {
  const int64_t dims = tile.latent_dim + tile.rope_dim;
  VectorF32 acc[kDims][kVectors];
#pragma GCC unroll 8
  for (int d = 0; d < kDims; ++d) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      acc[d][v] = VectorF32::load(out.data + v * out.stride + d * kLanes) * out.rescale[v];
    }
  }
  for (int32_t i = 0; i < tile.num_rows; ++i) {
    VectorF32 weight[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      weight[v] = VectorF32::load(weights + v * kVectorFloats + i * kLanes);
    }
#pragma GCC unroll 8
    for (int d = 0; d < kDims; ++d) {
      const VectorF32 element = VectorF32::broadcast(rows[i * dims + d]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[d][v] = multiply_add(element, weight[v], acc[d][v]);
    }
  }
#pragma GCC unroll 8
  for (int d = 0; d < kDims; ++d) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) acc[d][v].store(out.data + v * out.stride + d * kLanes);
  }
}

template <int kVectors>
inline void attend_vectors(const AttentionTile& tile, const AttentionHeads& heads, int32_t first,
                           NextRowsPrefetch& prefetch) {
  alignas(64) float scores[kVectors * kVectorFloats];
  const auto* rows = static_cast<const float*>(tile.rows);
  const int64_t dims = tile.latent_dim + tile.rope_dim;
  const float* q = static_cast<const float*>(heads.q) + first * dims * kLanes;
  int32_t i = 0;
  for (; i + kBlock <= tile.num_rows; i += kBlock) {
    prefetch.advance(kUnitsPerScoreBlock);
    score_block<kBlock, kVectors>(rows + i * dims, dims, q, tile.softmax_scale,
                                  scores + i * kLanes);
  }
  for (; i < tile.num_rows; ++i) {
    score_block<1, kVectors>(rows + i * dims, dims, q, tile.softmax_scale, scores + i * kLanes);
  }
  VectorF32 rescale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const int32_t lane = (first + v) * kLanes;
    rescale[v] =
        softmax(tile.num_rows, scores + v * kVectorFloats, heads.max + lane, heads.sum + lane);
  }
  const int64_t out_stride = int64_t{heads.out_dims} * kLanes;
  float* out = heads.out + first * out_stride;
  int32_t d = 0;
  for (; d + kBlock <= tile.latent_dim; d += kBlock) {
    prefetch.advance(1);
    accumulate_block<kBlock, kVectors>(tile, rows + d, scores,
                                       {out + d * kLanes, out_stride, rescale});
  }
  for (; d < tile.latent_dim; ++d) {
    accumulate_block<1, kVectors>(tile, rows + d, scores, {out + d * kLanes, out_stride, rescale});
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

constexpr AttentionTable kTable{kLanes, false, load_tile, attend_tile};

}  // namespace
}  // namespace dhs
