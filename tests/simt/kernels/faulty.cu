#include "kernels/cuda/cp_async.h"
#include "simt/kernels/faulty.cuh"

namespace simt::faulty {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

__device__ unsigned global_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

}  // namespace

// ------------------------------------------------------------------------ barriers, collectives

__global__ void divergent_barrier(float* x) {
  if (threadIdx.x < 17) {
    x[threadIdx.x] = 1;
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void exit_before_barrier(float* x) {
  if (threadIdx.x == 40) {
    return;
  }
  __syncthreads();
  x[threadIdx.x] = 1;
}

__global__ void call_outside_mask(int* x) {
  x[threadIdx.x] = __shfl_sync(0x0000ffffu, int(threadIdx.x), 0);
}

__global__ void exited_lane_in_mask(int* x) {
  if (threadIdx.x == 0) {
    return;
  }
  x[threadIdx.x] = __shfl_sync(kAllLanes, int(threadIdx.x), 1);
}

__global__ void missing_lane_in_mask(int* x) {
  if (threadIdx.x < 16) {
    x[threadIdx.x] = __shfl_sync(kAllLanes, int(threadIdx.x), 0);
  }
}

__global__ void disagreeing_masks(int* x) {
  const unsigned mask = threadIdx.x < 16 ? kAllLanes : 0xffff0001u;
  x[threadIdx.x] = __shfl_sync(mask, int(threadIdx.x), 0);
}

__global__ void disagreeing_collectives(int* x) {
  if (threadIdx.x < 16) {
    x[threadIdx.x] = __shfl_sync(kAllLanes, int(threadIdx.x), 0);
  } else {
    x[threadIdx.x] = int(__ballot_sync(kAllLanes, 1));
  }
}

__global__ void spin_forever(int* flag) {
  while (atomicAdd(flag, 0) == 0) {
    __nanosleep(10);
  }
}

__global__ void trapped(int* x) {
  if (x[threadIdx.x] == 0) __trap();
}

// --------------------------------------------------------------------------------------- memory

__global__ void write_past_end(float* x) { x[global_index() + 1] = 1; }

__global__ void read_past_end(const float* x, float* y) {
  y[global_index()] = x[global_index() + 1];
}

__global__ void atomic_past_end(int* x) { atomicAdd(x + global_index() + 1, 1); }

__global__ void misaligned_vector(const float* x, float* y) {
  // The whole vector, or the compiler would load single floats.
  reinterpret_cast<uint4*>(y)[threadIdx.x] = *reinterpret_cast<const uint4*>(x + 1);
}

__global__ void read_other_threads_stack(int* x) {
  // The address of a local variable means nothing to other threads.
  __shared__ const volatile int* address;
  volatile int local = 7;
  if (threadIdx.x == 0) {
    address = &local;
  }
  __syncthreads();
  x[threadIdx.x] = *address;
}

__global__ void dynamic_shared_overrun(float* x) {
  DHS_DYN_SHARED(float, shared);
  shared[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = shared[threadIdx.x + 1];
}

__global__ void static_shared_overrun(float* x) {
  __shared__ float shared[64];
  shared[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = shared[threadIdx.x + 1];
}

__global__ void read_unwritten_shared(float* x) {
  DHS_DYN_SHARED(float, shared);
  if (threadIdx.x != 0) shared[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = shared[threadIdx.x];
}

__global__ void signed_overflow(int* x) { x[threadIdx.x] = x[threadIdx.x] + 0x7fffffff; }

// ---------------------------------------------------------------------------------------- races

__global__ void missing_syncthreads(float* x) {
  __shared__ float shared[64];
  shared[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = shared[63 - threadIdx.x];
}

__global__ void missing_syncwarp(const int* x, int* y) {
  __shared__ int values[32];
  values[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = values[31 - threadIdx.x];
}

__global__ void overwritten_while_read(float* x) {
  __shared__ float shared[64];
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float mirrored = shared[63 - threadIdx.x];
  shared[threadIdx.x] = mirrored;
}

__global__ void plain_write_beside_atomic(int* x) {
  __shared__ int counter;
  if (threadIdx.x == 0) {
    counter = 0;
  }
  x[threadIdx.x] = atomicAdd(&counter, 1);
}

__global__ void blocks_share_output(float* x) { x[threadIdx.x] = float(blockIdx.x); }

__global__ void threads_share_output(float* x) { x[threadIdx.x / 2] = float(threadIdx.x); }

// -------------------------------------------------------------------------- asynchronous copies

__global__ void missing_async_wait(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, stage);
  cp_async_16(stage + threadIdx.x, x + threadIdx.x);
  cp_async_commit_group();
  y[threadIdx.x] = stage[threadIdx.x];
}

__global__ void missing_barrier_after_async_wait(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, stage);
  cp_async_16(stage + threadIdx.x, x + threadIdx.x);
  cp_async_commit_group();
  cp_async_wait_group<0>();
  y[threadIdx.x] = stage[blockDim.x - 1 - threadIdx.x];
}

__global__ void async_copy_over_unread_data(const uint4* x, uint4* y) {
  DHS_DYN_SHARED(uint4, stage);
  const unsigned mirrored = blockDim.x - 1 - threadIdx.x;
  stage[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = stage[mirrored];
  cp_async_16(stage + threadIdx.x, x + threadIdx.x);
  cp_async_commit_group();
  __syncthreads();  // comes too late: the copy may already have been made
  cp_async_wait_group<0>();
}

}  // namespace simt::faulty
