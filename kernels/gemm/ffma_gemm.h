// ffma_gemm: the kernel for f32 weights, on the ordinary cores.
//
// Block: BLOCK_M x 64 outputs, each thread kRows x 4 of them. Both operands come 32 columns at a
// time through registers, one stage ahead, and lie turned in shared memory: [column][row], so that
// a thread's rows and columns are neighbours. Static shared memory.
//
// Bound by reading weights (4 n k bytes per row tile) for few rows, then by the fma units: 2 m n k
// FLOPs. Used for small matrices: routers, indexer weights.
//
// Order of k: one fma per column in rising order; stretches are added in rising order.
#pragma once

#include "kernels/gemm/gemm_problem.h"

namespace dhs::cuda {

template <GemmTile kTile>
struct FfmaTile {
  static constexpr int BLOCK_M = tile_block_m(GemmPrecision::kF32, kTile);
  static constexpr int BLOCK_N = tile_block_n(GemmPrecision::kF32, kTile);
  static constexpr int BLOCK_K = static_cast<int>(stage_columns(GemmPrecision::kF32));
  static constexpr int kRows = BLOCK_M == 16 ? 2 : 4;  // of a thread
  static constexpr int kColumns = 4;
  static constexpr int kThreadsN = BLOCK_N / kColumns;
  static constexpr int kThreads = BLOCK_M / kRows * kThreadsN;
  static constexpr int kVectors = BLOCK_K / 4;  // of a staged row
  static constexpr int kLoadsA = BLOCK_M * kVectors / kThreads;
  static constexpr int kLoadsW = BLOCK_N * kVectors / kThreads;
};

using FfmaRows16 = FfmaTile<GemmTile::kRows16>;
using FfmaRows64 = FfmaTile<GemmTile::kRows64>;

// What a thread carries from global to shared memory for one stage.
template <class Tile>
struct StageLoads {
  float4 a[Tile::kLoadsA];
  float4 w[Tile::kLoadsW];
};

template <class Tile>
__device__ __forceinline__ void load_stage(const GemmProblem& p, const TilePlace& place, int64_t k0,
                                           StageLoads<Tile>& loads) {
  for (int i = 0; i < Tile::kLoadsA; ++i) {
    const int index = threadIdx.x + i * Tile::kThreads;
    const int64_t row = place.row_begin + index % Tile::BLOCK_M;
    const int64_t column = k0 + index / Tile::BLOCK_M * 4;
    loads.a[i] = make_float4(0, 0, 0, 0);
    if (row >= place.row_end || column >= p.k) continue;
    const float* from = p.a + row * p.a_row_stride + place.head * p.a_head_stride + column;
    if (p.a_is_aligned && column + 4 <= p.k) {
      loads.a[i] = *reinterpret_cast<const float4*>(from);
      continue;
    }
    loads.a[i].x = from[0];
    if (column + 1 < p.k) loads.a[i].y = from[1];
    if (column + 2 < p.k) loads.a[i].z = from[2];
    if (column + 3 < p.k) loads.a[i].w = from[3];
  }
  for (int i = 0; i < Tile::kLoadsW; ++i) {
    const int index = threadIdx.x + i * Tile::kThreads;
    int64_t row = place.column_begin + index % Tile::BLOCK_N;
    if (row >= p.n) row = p.n - 1;
    const int64_t byte = (k0 + index / Tile::BLOCK_N * 4) * 4;  // weights are padded with zeros
    const std::byte* from = p.weights + (place.matrix * p.n + row) * p.row_bytes + byte;
    loads.w[i] = *reinterpret_cast<const float4*>(from);
  }
}

template <int kBlock, int kCount, int kThreads>
__device__ __forceinline__ void store_turned(float (*shared)[kBlock],
                                             const float4 (&loads)[kCount]) {
  for (int i = 0; i < kCount; ++i) {
    const int index = threadIdx.x + i * kThreads;
    const int row = index % kBlock;
    const int column = index / kBlock * 4;
    shared[column][row] = loads[i].x;
    shared[column + 1][row] = loads[i].y;
    shared[column + 2][row] = loads[i].z;
    shared[column + 3][row] = loads[i].w;
  }
}

// sums += one column of a times one of w.
template <class Tile>
__device__ __forceinline__ void add_products(const float* a, const float* w,
                                             float (&sums)[Tile::kRows][Tile::kColumns]) {
  for (int i = 0; i < Tile::kRows; ++i) {
    for (int j = 0; j < Tile::kColumns; ++j) sums[i][j] = fmaf(a[i], w[j], sums[i][j]);
  }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads) ffma_gemm_kernel(GemmProblem p) {
  __shared__ float shared_a[Tile::BLOCK_K][Tile::BLOCK_M];
  __shared__ float shared_w[Tile::BLOCK_K][Tile::BLOCK_N];
  TilePlace place;
  if (!place_tile(p, Tile::BLOCK_M, Tile::BLOCK_N, place)) return;

  const int64_t k_begin = place.first_stretch * p.stretch;
  const int64_t k_limit = place.end_stretch * p.stretch;
  const int64_t k_end = k_limit < p.k ? k_limit : p.k;
  const int own_row = threadIdx.x / Tile::kThreadsN * Tile::kRows;
  const int own_column = threadIdx.x % Tile::kThreadsN * Tile::kColumns;

  float sums[Tile::kRows][Tile::kColumns] = {};
  float total[Tile::kRows][Tile::kColumns] = {};
  StageLoads<Tile> loads;
  load_stage<Tile>(p, place, k_begin, loads);
  int64_t stretch_end = k_begin + p.stretch;
  for (int64_t k0 = k_begin; k0 < k_end; k0 += Tile::BLOCK_K) {
    __syncthreads();  // all are done with the stage before
    store_turned<Tile::BLOCK_M, Tile::kLoadsA, Tile::kThreads>(shared_a, loads.a);
    store_turned<Tile::BLOCK_N, Tile::kLoadsW, Tile::kThreads>(shared_w, loads.w);
    __syncthreads();
    const int64_t next = k0 + Tile::BLOCK_K;
    if (next < k_end) load_stage<Tile>(p, place, next, loads);
    for (int column = 0; column < Tile::BLOCK_K; ++column) {
      add_products<Tile>(shared_a[column] + own_row, shared_w[column] + own_column, sums);
    }
    if (next != stretch_end && next < k_end) continue;
    for (int i = 0; i < Tile::kRows; ++i) {
      for (int j = 0; j < Tile::kColumns; ++j) {
        total[i][j] += sums[i][j];
        sums[i][j] = 0;
      }
    }
    stretch_end += p.stretch;
  }

  const TileTarget target = tile_target(p, place);
  for (int i = 0; i < Tile::kRows; ++i) {
    const int64_t row = place.row_begin + own_row + i;
    if (row >= place.row_end) break;
    for (int j = 0; j < Tile::kColumns; ++j) {
      const int64_t column = place.column_begin + own_column + j;
      if (column < p.n) target.data[row * target.row_stride + column] = total[i][j];
    }
  }
}

}  // namespace dhs::cuda
