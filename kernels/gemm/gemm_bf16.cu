// gemm_bf16: the tiles of bf16 weights. The kernel is in mma_gemm.h.
#include "kernels/gemm/mma_gemm.h"
#include "kernels/gemm/tile_launch.h"

namespace dhs::cuda {
namespace {

template <class Tile>
void allow() {
  if constexpr (Tile::kSharedBytes > kDefaultSharedBytes) {
    allow_shared_bytes("gemm_bf16", mma_gemm_kernel<Tile>, Tile::kSharedBytes);
  }
}

template <class Tile>
void launch_mma(const GemmProblem& problem, dim3 grid, Stream stream) {
  launch("gemm_bf16", mma_gemm_kernel<Tile>,
         {.grid = grid, .block = Tile::kThreads, .shared_bytes = Tile::kSharedBytes}, stream,
         problem);
}

}  // namespace

void allow_tiles_bf16() {
  allow<MmaBf16Rows16>();
  allow<MmaBf16Rows64>();
  allow<MmaBf16Rows128>();
}

void launch_tile_bf16(const GemmProblem& problem, GemmTile tile, dim3 grid, Stream stream) {
  switch (tile) {
    case GemmTile::kRows16:
      return launch_mma<MmaBf16Rows16>(problem, grid, stream);
    case GemmTile::kRows64:
      return launch_mma<MmaBf16Rows64>(problem, grid, stream);
    case GemmTile::kRows128:
      return launch_mma<MmaBf16Rows128>(problem, grid, stream);
  }
}

}  // namespace dhs::cuda
