#include "kernels/cuda/mma.h"
#include "simt/kernels/examples.cuh"

namespace simt::examples {
namespace {

constexpr int kTileM = 16;
constexpr int kTileN = 8;
constexpr int kTileK = 16;
constexpr int kVector = sizeof(uint4) / sizeof(__nv_bfloat16);

__device__ void copy_vector(__nv_bfloat16* to, const __nv_bfloat16* from) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

__device__ uint32_t load_pair(const __nv_bfloat16* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}

}  // namespace

__global__ void gemm_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  DHS_DYN_SHARED(unsigned char, shared);
  auto* a_tile = reinterpret_cast<__nv_bfloat16*>(shared);  // [kTileM][kTileK]
  auto* b_tile = a_tile + kTileM * kTileK;                  // [kTileN][kTileK]

  const int lane = threadIdx.x;
  const int m0 = blockIdx.y * kTileM;
  const int n0 = blockIdx.x * kTileN;
  // Two vectors make a row of a tile.
  const int load_row = lane / 2;
  const int load_column = (lane % 2) * kVector;
  // See ptx/mma.h for what a lane holds.
  const int group = lane / 4;
  const int pair = (lane % 4) * 2;

  float d[4] = {0, 0, 0, 0};
  for (int k0 = 0; k0 < k; k0 += kTileK) {
    copy_vector(a_tile + lane * kVector, a + size_t(m0 + load_row) * k + k0 + load_column);
    if (load_row < kTileN) {
      copy_vector(b_tile + lane * kVector, b + size_t(n0 + load_row) * k + k0 + load_column);
    }
    __syncwarp();
    const __nv_bfloat16* a_upper = a_tile + group * kTileK + pair;
    const __nv_bfloat16* a_lower = a_upper + 8 * kTileK;
    const __nv_bfloat16* b_column = b_tile + group * kTileK + pair;
    const uint32_t a_registers[4] = {load_pair(a_upper), load_pair(a_lower), load_pair(a_upper + 8),
                                     load_pair(a_lower + 8)};
    const uint32_t b_registers[2] = {load_pair(b_column), load_pair(b_column + 8)};
    mma_m16n8k16_bf16(d, a_registers, b_registers);
    __syncwarp();
  }

  float* upper = c + size_t(m0 + group) * n + n0 + pair;
  float* lower = upper + size_t(8) * n;
  upper[0] = d[0];
  upper[1] = d[1];
  lower[0] = d[2];
  lower[1] = d[3];
}

}  // namespace simt::examples
