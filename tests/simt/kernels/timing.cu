#include "simt/kernels/timing.cuh"

namespace simt::timing {

__global__ void barriers(int* x, int iterations) {
  for (int i = 0; i < iterations; ++i) {
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    atomicAdd(x, 1);
  }
}

__global__ void shuffles(int* x, int iterations) {
  unsigned value = threadIdx.x;
  for (int i = 0; i < iterations; ++i) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
  }
  if (value == 12345) {
    *x = 1;
  }
}

__global__ void scale(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    x[i] = x[i] * 2 + 1;
  }
}

}  // namespace simt::timing
