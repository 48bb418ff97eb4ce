#include "simt/kernels/examples.cuh"

namespace simt::examples {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ float warp_sum(float value) {
  for (int delta = 16; delta > 0; delta /= 2) {
    value += __shfl_down_sync(kAllLanes, value, delta);
  }
  return value;
}

}  // namespace

__global__ void __launch_bounds__(256) block_sum(const float* __restrict__ x, float* out, int n) {
  __shared__ float warp_sums[32];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int warps = blockDim.x / 32;

  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum += __ldg(x + i);
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    warp_sums[warp] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    sum = warp_sum(lane < warps ? warp_sums[lane] : 0.0f);
    if (lane == 0) {
      atomicAdd(out, sum);
    }
  }
}

}  // namespace simt::examples
