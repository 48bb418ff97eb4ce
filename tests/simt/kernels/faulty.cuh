// Kernels that are wrong, one fault each: the emulator must find it.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::faulty {

// Barriers and collectives.
__global__ void divergent_barrier(float* x);
__global__ void exit_before_barrier(float* x);
__global__ void call_outside_mask(int* x);
__global__ void exited_lane_in_mask(int* x);
__global__ void missing_lane_in_mask(int* x);
__global__ void disagreeing_masks(int* x);
__global__ void disagreeing_collectives(int* x);
__global__ void spin_forever(int* flag);
__global__ void trapped(int* x);

// Memory. x and y have as many elements as the launch has threads.
__global__ void write_past_end(float* x);
__global__ void read_past_end(const float* x, float* y);
__global__ void atomic_past_end(int* x);
__global__ void misaligned_vector(const float* x, float* y);
__global__ void read_other_threads_stack(int* x);
__global__ void dynamic_shared_overrun(float* x);
__global__ void static_shared_overrun(float* x);
__global__ void read_unwritten_shared(float* x);
__global__ void signed_overflow(int* x);

// Races in shared memory.
__global__ void missing_syncthreads(float* x);
__global__ void missing_syncwarp(const int* x, int* y);
__global__ void overwritten_while_read(float* x);
__global__ void plain_write_beside_atomic(int* x);

// Races in global memory.
__global__ void blocks_share_output(float* x);
__global__ void threads_share_output(float* x);

// Asynchronous copies. One 16-byte vector of shared memory per thread.
__global__ void missing_async_wait(const uint4* x, uint4* y);
__global__ void missing_barrier_after_async_wait(const uint4* x, uint4* y);
__global__ void async_copy_over_unread_data(const uint4* x, uint4* y);

}  // namespace simt::faulty
