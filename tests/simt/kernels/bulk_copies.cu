#include "kernels/cuda/bulk_copy.h"
#include "simt/kernels/bulk_copies.cuh"

namespace simt::bulk {
namespace {

constexpr int kStages = 2;

// Thread 0 fetches the block's one tile.
__device__ void fetch(uint4* smem, const uint4* x, MBarrier* full) {
  if (threadIdx.x != 0) return;
  const unsigned bytes = blockDim.x * sizeof(uint4);
  mbarrier_arrive_expect_tx(full, bytes);
  bulk_copy(smem, x, bytes, full);
}

__device__ void init(MBarrier* full, unsigned count) {
  if (threadIdx.x == 0) {
    mbarrier_init(full, count);
    mbarrier_fence_init();
  }
  __syncthreads();
}

__device__ uint4 incremented(uint4 vector) {
  return make_uint4(vector.x + 1, vector.y + 1, vector.z + 1, vector.w + 1);
}

struct Stages {
  uint4* smem;
  MBarrier* full;
  MBarrier* empty;
  unsigned vectors;  // of one tile
};

__device__ void produce(const Stages& stages, const uint4* x, int tiles) {
  if (threadIdx.x != 0) return;
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    mbarrier_wait(&stages.empty[stage], (tile / kStages & 1) ^ 1);
    const unsigned bytes = stages.vectors * sizeof(uint4);
    mbarrier_arrive_expect_tx(&stages.full[stage], bytes);
    bulk_copy(stages.smem + stage * stages.vectors, x + size_t(tile) * stages.vectors, bytes,
              &stages.full[stage]);
  }
}

__device__ void consume(const Stages& stages, uint4* y, int tiles) {
  const unsigned i = threadIdx.x - 32;
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % kStages;
    mbarrier_wait(&stages.full[stage], tile / kStages & 1);
    const uint4 vector = stages.smem[stage * stages.vectors + i];
    mbarrier_arrive(&stages.empty[stage]);
    y[size_t(tile) * stages.vectors + i] = incremented(vector);
  }
}

}  // namespace

__global__ void staged_increment(const uint4* x, uint4* y, int tiles) {
  DHS_DYN_SHARED(uint4, smem);
  __shared__ MBarrier full[kStages];
  __shared__ MBarrier empty[kStages];
  const unsigned vectors = blockDim.x - 32;
  if (threadIdx.x < kStages) {
    mbarrier_init(&full[threadIdx.x], 1);
    mbarrier_init(&empty[threadIdx.x], vectors);
    mbarrier_fence_init();
  }
  __syncthreads();
  const Stages stages = {smem, full, empty, vectors};
  if (threadIdx.x < 32) {
    produce(stages, x, tiles);
  } else {
    consume(stages, y, tiles);
  }
}

__global__ void copy_once(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, smem);
  __shared__ MBarrier full;
  init(&full, 1);
  fetch(smem, x, &full);
  // One lane waits, the others learn of it from their warp.
  if (threadIdx.x % 32 == 0) mbarrier_wait(&full, 0);
  __syncwarp();
  y[threadIdx.x] = smem[blockDim.x - 1 - threadIdx.x];
}

__global__ void missing_wait(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, smem);
  __shared__ MBarrier full;
  init(&full, 1);
  fetch(smem, x, &full);
  __syncthreads();
  y[threadIdx.x] = smem[threadIdx.x];
}

__global__ void missing_empty_wait(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, smem);
  __shared__ MBarrier full;
  init(&full, 1);
  fetch(smem, x, &full);
  mbarrier_wait(&full, 0);
  y[threadIdx.x] = smem[threadIdx.x];
  fetch(smem, x + blockDim.x, &full);
  __syncthreads();  // comes too late: the copy may already have been made
  mbarrier_wait(&full, 1);
  y[blockDim.x + threadIdx.x] = smem[threadIdx.x];
}

__global__ void too_few_bytes_announced(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, smem);
  __shared__ MBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, sizeof(uint4));
    bulk_copy(smem, x, 2 * sizeof(uint4), &full);
  }
  mbarrier_wait(&full, 0);
  y[threadIdx.x] = smem[threadIdx.x % 2];
}

__global__ void one_arrival_too_many(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, smem);
  __shared__ MBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, sizeof(uint4));
    mbarrier_arrive(&full);  // the phase still lacks its bytes
    bulk_copy(smem, x, sizeof(uint4), &full);
  }
  mbarrier_wait(&full, 0);
  y[threadIdx.x] = smem[0];
}

__global__ void uninitialized_barrier(uint4* y) {
  __shared__ MBarrier full;
  mbarrier_arrive(&full);
  y[threadIdx.x] = make_uint4(0, 0, 0, 0);
}

__global__ void missing_barrier_after_init(const uint4* x, uint4* y) {
  __shared__ MBarrier full;
  if (threadIdx.x == 0) {
    mbarrier_init(&full, blockDim.x);
    mbarrier_fence_init();
  }
  mbarrier_arrive(&full);
  mbarrier_wait(&full, 0);
  y[threadIdx.x] = x[threadIdx.x];
}

__global__ void misaligned_copy(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, smem);
  __shared__ MBarrier full;
  init(&full, 1);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&full, 8);
    bulk_copy(smem, x, 8, &full);
  }
  mbarrier_wait(&full, 0);
  y[threadIdx.x] = smem[0];
}

}  // namespace simt::bulk
