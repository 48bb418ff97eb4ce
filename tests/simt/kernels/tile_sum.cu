#include "simt/kernels/examples.cuh"

#if defined(__CUDACC__)
#include <cooperative_groups.h>  // 12 s of compile time: keep it out of common headers
#else
#include "simt/emu/cooperative_groups.h"
#endif

namespace cg = cooperative_groups;

namespace simt::examples {

__global__ void tile_sum(int* x) {
  const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int value = x[threadIdx.x];
  for (int delta = 4; delta > 0; delta /= 2) {
    value += tile.shfl_down(value, delta);
  }
  if (tile.thread_rank() == 0) {
    x[threadIdx.x] = value;
  }
}

}  // namespace simt::examples
