// Tensor core instructions and the loads that feed them.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::matrices {

// Four 8x8 matrices of 16-bit elements, one after the other, as ldmatrix hands them out: 4 words a
// lane. One warp; 512 bytes of shared memory.
__global__ void load_x4(const uint16_t* matrices, uint32_t* words);
__global__ void load_x4_trans(const uint16_t* matrices, uint32_t* words);
// The first two of them: 2 words a lane.
__global__ void load_x2(const uint16_t* matrices, uint32_t* words);
__global__ void load_x2_trans(const uint16_t* matrices, uint32_t* words);

// C (16x8, f32) = A (16x16, bf16) * B^T (8x16), fed by ldmatrix. One warp; 768 bytes.
__global__ void multiply_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c);
// C (16x8, f32) = A (16x32, e4m3) * B^T (8x32). One warp.
__global__ void multiply_e4m3(const uint8_t* a, const uint8_t* b, float* c);

}  // namespace simt::matrices
