// Bulk copies and mbarriers: one right pipeline, and wrong ones with one fault each.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::bulk {

// y[tile][i] = x[tile][i] + 1. The first warp fetches tiles of `blockDim.x - 32` vectors into two
// stages, the other warps consume them. 2 stages of shared memory.
__global__ void staged_increment(const uint4* x, uint4* y, int tiles);

// The whole block waits for one copy of one vector per thread; y[i] = x[mirrored i].
__global__ void copy_once(const uint4* x, uint4* y);

__global__ void missing_wait(const uint4* x, uint4* y);
// The producer fetches the second tile without waiting until the first one is consumed.
__global__ void missing_empty_wait(const uint4* x, uint4* y);
__global__ void too_few_bytes_announced(const uint4* x, uint4* y);
__global__ void one_arrival_too_many(const uint4* x, uint4* y);
__global__ void uninitialized_barrier(uint4* y);
__global__ void missing_barrier_after_init(const uint4* x, uint4* y);
__global__ void misaligned_copy(const uint4* x, uint4* y);

}  // namespace simt::bulk
