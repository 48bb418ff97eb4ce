#include "simt/kernels/queued.cuh"

namespace simt::queued {
namespace {

__device__ unsigned global_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

}  // namespace

__global__ void fill(int* x, int value) { x[global_index()] = value; }

__global__ void add(int* x, int value) { x[global_index()] += value; }

__global__ void reverse(const int* x, int* y) {
  y[global_index()] = x[gridDim.x * blockDim.x - 1 - global_index()];
}

}  // namespace simt::queued
