// Kernels that are right: the emulator must run them and stay silent.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::examples {

// *out += sum of x[0..n)
__global__ void block_sum(const float* x, float* out, int n);

// A cache row: 656 bytes, moved as 16-byte vectors.
inline constexpr int kRowBytes = 656;
inline constexpr int kRowVectors = kRowBytes / 16;

// Looks up the ids `topk` in a cache index (open addressing, -1: empty) and fetches the rows of
// those that are absent from host memory into new slots.
struct FetchMissesArgs {
  const int* topk;
  int topk_count;
  const int* hash_keys;
  const int* hash_slots;
  int hash_capacity;  // a power of two
  const uint4* host_rows;
  uint4* device_rows;
  int used_slots;
  int* miss_count;
  int* miss_ids;  // in the order of their new slots
  int* slot_of;   // for each of topk
};
__global__ void fetch_misses(FetchMissesArgs args);

// The hash of fetch_misses' index.
__host__ __device__ inline unsigned hash_id(int id) { return unsigned(id) * 2654435761u; }

// C (m x n, f32) = A (m x k) * B^T (n x k). One warp per 16x8 tile; 768 bytes of shared memory.
inline constexpr size_t kGemmSharedBytes = (16 + 8) * 16 * sizeof(__nv_bfloat16);
__global__ void gemm_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k);

// The first of each 8 elements becomes the sum of the 8.
__global__ void tile_sum(int* x);

// y[i] = x[i] + 1 by way of a double-buffered asynchronous pipeline. `tiles` tiles of one 16-byte
// vector per thread; 2 vectors of shared memory per thread.
__global__ void staged_increment(const uint4* x, uint4* y, int tiles);

// y[i] = x[31 - i], one warp.
__global__ void warp_reverse(const int* x, int* y);

// flag[0] is set by one warp and spun on by another.
__global__ void spin_until_set(int* flag);

}  // namespace simt::examples
