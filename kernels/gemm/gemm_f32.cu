// gemm_f32: the tiles of f32 weights. The kernel is in ffma_gemm.h.
#include "kernels/gemm/ffma_gemm.h"
#include "kernels/gemm/tile_launch.h"

namespace dhs::cuda {
namespace {

template <class Tile>
void launch_ffma(const GemmProblem& problem, dim3 grid, Stream stream) {
  launch("gemm_f32", ffma_gemm_kernel<Tile>, {.grid = grid, .block = Tile::kThreads}, stream,
         problem);
}

}  // namespace

void launch_tile_f32(const GemmProblem& problem, GemmTile tile, dim3 grid, Stream stream) {
  if (tile == GemmTile::kRows16) return launch_ffma<FfmaRows16>(problem, grid, stream);
  launch_ffma<FfmaRows64>(problem, grid, stream);
}

}  // namespace dhs::cuda
