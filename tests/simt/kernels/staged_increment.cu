#include "kernels/cuda/cp_async.h"
#include "simt/kernels/examples.cuh"

namespace simt::examples {
namespace {

__device__ void fetch(uint4* stage, const uint4* x, int tile, int tiles) {
  if (tile < tiles) {
    cp_async_16(stage + threadIdx.x, x + size_t(tile) * blockDim.x + threadIdx.x);
  }
  // Even if empty, so that the wait below always counts the same way.
  cp_async_commit_group();
}

}  // namespace

__global__ void staged_increment(const uint4* x, uint4* y, int tiles) {
  DHS_DYN_SHARED(uint4, stages);
  fetch(stages, x, 0, tiles);
  for (int tile = 0; tile < tiles; ++tile) {
    const int now = tile % 2;
    fetch(stages + (1 - now) * blockDim.x, x, tile + 1, tiles);
    cp_async_wait_group<1>();
    __syncthreads();
    // Reading a neighbour's vector makes the barriers necessary.
    const unsigned mirrored = blockDim.x - 1 - threadIdx.x;
    uint4 vector = stages[now * blockDim.x + mirrored];
    vector.x += 1;
    vector.y += 1;
    vector.z += 1;
    vector.w += 1;
    y[size_t(tile) * blockDim.x + mirrored] = vector;
    __syncthreads();
  }
}

}  // namespace simt::examples
