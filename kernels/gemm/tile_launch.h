// tile_launch: the compiled tiles, one source per precision.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/gemm/gemm_problem.h"

namespace dhs::cuda {

// Launches the tile's kernel over the grid that place_tile reads.
void launch_tile_f32(const GemmProblem& problem, GemmTile tile, dim3 grid, Stream stream);
void launch_tile_bf16(const GemmProblem& problem, GemmTile tile, dim3 grid, Stream stream);
void launch_tile_fp8(const GemmProblem& problem, GemmTile tile, dim3 grid, Stream stream);

// Lets the tiles use the shared memory they need; once per device, outside captures.
void allow_tiles_bf16();
void allow_tiles_fp8();

// out = the sum of the stretches' partial sums, in rising order; for the rows that meet a matrix.
void launch_add_stretches(const GemmProblem& problem, Stream stream);

}  // namespace dhs::cuda
