// gemm_fp8: the tiles of fp8 weights. The kernel is in mma_gemm.h.
#include "kernels/gemm/mma_gemm.h"
#include "kernels/gemm/tile_launch.h"

namespace dhs::cuda {
namespace {

template <class Tile>
void allow() {
  if constexpr (Tile::kSharedBytes > kDefaultSharedBytes) {
    allow_shared_bytes("gemm_fp8", mma_gemm_kernel<Tile>, Tile::kSharedBytes);
  }
}

template <class Tile>
void launch_mma(const GemmProblem& problem, dim3 grid, Stream stream) {
  launch("gemm_fp8", mma_gemm_kernel<Tile>,
         {.grid = grid, .block = Tile::kThreads, .shared_bytes = Tile::kSharedBytes}, stream,
         problem);
}

}  // namespace

void allow_tiles_fp8() {
  allow<MmaFp8Rows16>();
  allow<MmaFp8Rows64>();
  allow<MmaFp8Rows128>();
}

void launch_tile_fp8(const GemmProblem& problem, GemmTile tile, dim3 grid, Stream stream) {
  switch (tile) {
    case GemmTile::kRows16:
      return launch_mma<MmaFp8Rows16>(problem, grid, stream);
    case GemmTile::kRows64:
      return launch_mma<MmaFp8Rows64>(problem, grid, stream);
    case GemmTile::kRows128:
      return launch_mma<MmaFp8Rows128>(problem, grid, stream);
  }
}

}  // namespace dhs::cuda
