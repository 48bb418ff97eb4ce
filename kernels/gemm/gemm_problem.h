// gemm_problem: what a tile needs to know, and where in the product it lies. Plain, head and
// grouped products are one problem to the kernels.
#pragma once

#include "kernels/cuda/cuda.h"
#include "kernels/gemm/gemm_config.h"

namespace dhs::cuda {

struct GemmProblem {
  // Weights: num matrices of [n, row_bytes], one after the other.
  const std::byte* weights = nullptr;
  int64_t row_bytes = 0;
  int64_t first_matrix = 0;
  int64_t n = 0;
  int64_t k = 0;

  // Rows [first_row, end_row) of a and out; of every head.
  int64_t first_row = 0;
  int64_t end_row = 0;
  const float* a = nullptr;
  int64_t a_row_stride = 0;
  int64_t a_head_stride = 0;
  bool a_is_aligned = false;  // every row starts at 16 bytes
  float* out = nullptr;
  int64_t out_row_stride = 0;
  int64_t out_head_stride = 0;
  int64_t num_heads = 1;

  // Grouped: [num_groups + 1]; null otherwise.
  const int32_t* offsets = nullptr;
  int64_t num_groups = 0;

  // fp8: the quantised rows, [end_row - first_row, num_heads, row_bytes], their scales
  // [..., num_blocks], and the weights' scales [num matrices, ceil(n / 128), w_scale_stride].
  const F8E4m3* q = nullptr;
  const float* a_scales = nullptr;
  const float* w_scales = nullptr;
  int64_t w_scale_stride = 0;
  int64_t num_blocks = 0;

  int64_t stretch = 0;  // elements of k; see gemm_config.h
  int64_t num_stretches = 1;
  float* partials = nullptr;  // [num_stretches, end_row - first_row, num_heads, n], null: not split
};

// One block's part of the product.
struct TilePlace {
  int64_t row_begin = 0;
  int64_t row_end = 0;  // of the rows that meet the matrix; the tile may reach beyond
  int64_t column_begin = 0;
  int64_t matrix = 0;
  int64_t head = 0;
  int64_t first_stretch = 0;
  int64_t end_stretch = 0;
};

// The rows of grouped tile `tile`, by the block's first warp: {group, row_begin, row_end} into
// `found`, group -1 when there are fewer tiles.
__device__ inline void find_group_tile(const GemmProblem& p, int block_m, int64_t tile,
                                       int64_t* found) {
  const int lane = threadIdx.x;
  if (lane == 0) {
    found[0] = -1;
    found[1] = found[2] = 0;
  }
  __syncwarp();
  int64_t tiles_before = 0;
  for (int64_t first = 0; first < p.num_groups && tiles_before <= tile; first += 32) {
    const int64_t group = first + lane;
    int64_t begin = 0, end = 0;
    if (group < p.num_groups) {
      begin = p.offsets[group] > p.first_row ? p.offsets[group] : p.first_row;
      end = p.offsets[group + 1] < p.end_row ? p.offsets[group + 1] : p.end_row;
    }
    const int own_tiles = end > begin ? static_cast<int>((end - begin + block_m - 1) / block_m) : 0;
    int up_to_here = own_tiles;
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, up_to_here, step);
      if (lane >= step) up_to_here += below;
    }
    const int64_t within = tile - (tiles_before + up_to_here - own_tiles);
    if (within >= 0 && within < own_tiles) {
      found[0] = group;
      found[1] = begin + within * block_m;
      found[2] = end;
    }
    tiles_before += __shfl_sync(0xffffffffu, up_to_here, 31);
  }
}

// Grid: (row tiles, column tiles, heads x stretches that run apart). False: nothing to do.
__device__ inline bool place_tile(const GemmProblem& p, int block_m, int block_n,
                                  TilePlace& place) {
  __shared__ int64_t found[3];
  place.column_begin = int64_t{blockIdx.y} * block_n;
  const int64_t splits = p.partials != nullptr ? p.num_stretches : 1;
  place.head = blockIdx.z / splits;
  place.first_stretch = p.partials != nullptr ? blockIdx.z % splits : 0;
  place.end_stretch = p.partials != nullptr ? place.first_stretch + 1 : p.num_stretches;
  if (p.offsets == nullptr) {
    place.matrix = p.first_matrix + place.head;
    place.row_begin = p.first_row + int64_t{blockIdx.x} * block_m;
    place.row_end = p.end_row;
    return true;
  }
  if (threadIdx.x < 32) find_group_tile(p, block_m, blockIdx.x, found);
  __syncthreads();
  place.matrix = found[0];
  place.row_begin = found[1];
  place.row_end = found[2];
  return place.matrix >= 0;
}

// Where the sums of the tile's rows and columns go.
struct TileTarget {
  float* data;  // of row 0 of the problem, column 0
  int64_t row_stride;
};

__device__ inline TileTarget tile_target(const GemmProblem& p, const TilePlace& place) {
  if (p.partials == nullptr) {
    return {p.out + place.head * p.out_head_stride, p.out_row_stride};
  }
  const int64_t row_floats = p.num_heads * p.n;
  const int64_t stretch_floats = (p.end_row - p.first_row) * row_floats;
  return {p.partials + place.first_stretch * stretch_floats + place.head * p.n -
              p.first_row * row_floats,
          row_floats};
}

}  // namespace dhs::cuda
