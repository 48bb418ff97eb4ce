#include "simt/kernels/examples.cuh"

namespace simt::examples {

__global__ void warp_reverse(const int* x, int* y) {
  __shared__ int values[32];
  values[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = values[31 - threadIdx.x];
}

__global__ void spin_until_set(int* flag) {
  const bool waits = threadIdx.x == 0;
  const bool sets = threadIdx.x == 33;
  if (sets) {
    atomicExch(flag, 1);
  }
  if (waits) {
    while (atomicAdd(flag, 0) == 0) {
      __nanosleep(10);
    }
  }
}

}  // namespace simt::examples
