#include "kernels/cuda/ldmatrix.h"
#include "kernels/cuda/mma.h"
#include "simt/kernels/matrices.cuh"

namespace simt::matrices {
namespace {

constexpr int kMatrixElements = 64;

// All four matrices into shared memory, 16 elements a lane.
__device__ const uint16_t* stage_matrices(uint16_t* smem, const uint16_t* matrices) {
  for (int i = threadIdx.x; i < 4 * kMatrixElements; i += 32) smem[i] = matrices[i];
  __syncwarp();
  return smem + threadIdx.x * 8;  // the lane's row
}

template <int Count>
__device__ void store_words(uint32_t* words, const uint32_t (&d)[Count]) {
  for (int i = 0; i < Count; ++i) words[threadIdx.x * Count + i] = d[i];
}

// D as mma leaves it, to a row-major 16x8 matrix.
__device__ void store_product(float* c, const float (&d)[4]) {
  const int row = threadIdx.x / 4;
  const int column = (threadIdx.x % 4) * 2;
  for (int i = 0; i < 4; ++i) c[(row + (i / 2) * 8) * 8 + column + i % 2] = d[i];
}

}  // namespace

__global__ void load_x4(const uint16_t* matrices, uint32_t* words) {
  __shared__ __align__(16) uint16_t smem[4 * kMatrixElements];
  uint32_t d[4];
  ldmatrix_x4(d, stage_matrices(smem, matrices));
  store_words(words, d);
}

__global__ void load_x4_trans(const uint16_t* matrices, uint32_t* words) {
  __shared__ __align__(16) uint16_t smem[4 * kMatrixElements];
  uint32_t d[4];
  ldmatrix_x4_trans(d, stage_matrices(smem, matrices));
  store_words(words, d);
}

__global__ void load_x2(const uint16_t* matrices, uint32_t* words) {
  __shared__ __align__(16) uint16_t smem[4 * kMatrixElements];
  uint32_t d[2];
  ldmatrix_x2(d, stage_matrices(smem, matrices));
  store_words(words, d);
}

__global__ void load_x2_trans(const uint16_t* matrices, uint32_t* words) {
  __shared__ __align__(16) uint16_t smem[4 * kMatrixElements];
  uint32_t d[2];
  ldmatrix_x2_trans(d, stage_matrices(smem, matrices));
  store_words(words, d);
}

__global__ void multiply_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  DHS_DYN_SHARED(__nv_bfloat16, smem);
  __nv_bfloat16* smem_a = smem;            // [16][16]
  __nv_bfloat16* smem_b = smem + 16 * 16;  // [8][16]
  for (int i = threadIdx.x; i < 16 * 16; i += 32) smem_a[i] = a[i];
  for (int i = threadIdx.x; i < 8 * 16; i += 32) smem_b[i] = b[i];
  __syncwarp();
  const int lane = threadIdx.x;
  uint32_t a_words[4];
  uint32_t b_words[2];
  ldmatrix_x4(a_words, smem_a + (lane % 16) * 16 + lane / 16 * 8);
  ldmatrix_x2(b_words, smem_b + (lane % 8) * 16 + lane / 8 % 2 * 8);
  float d[4] = {0, 0, 0, 0};
  mma_m16n8k16_bf16(d, a_words, b_words);
  store_product(c, d);
}

__global__ void multiply_e4m3(const uint8_t* a, const uint8_t* b, float* c) {
  const int row = threadIdx.x / 4;
  const int first = (threadIdx.x % 4) * 4;
  const auto word = [](const uint8_t* from) { return *reinterpret_cast<const uint32_t*>(from); };
  const uint32_t a_words[4] = {word(a + row * 32 + first), word(a + (row + 8) * 32 + first),
                               word(a + row * 32 + first + 16),
                               word(a + (row + 8) * 32 + first + 16)};
  const uint32_t b_words[2] = {word(b + row * 32 + first), word(b + row * 32 + first + 16)};
  float d[4] = {0, 0, 0, 0};
  mma_m16n8k32_e4m3(d, a_words, b_words);
  store_product(c, d);
}

}  // namespace simt::matrices
