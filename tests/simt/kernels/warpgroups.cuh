// Warpgroup products: right ones over both layouts, and one with a fault of choice.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::warpgroups {

inline constexpr int kM = 64;
inline constexpr int kK = 128;

// How far apart the atoms of an operand lie.
struct Strides {
  unsigned lines_bytes;    // 1024 or more
  unsigned columns_bytes;  // of B's blocks of 64 columns; of blocks of 64 k
};

// c [64, n] = a [64, 128] * b. n is 64 or 256. 128 threads.
// b is [n, 128]: its lines hold k.
template <int kN>
__global__ void multiply_k_lines(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                                 Strides strides);
// b is [128, n]: its lines hold n.
template <int kN>
__global__ void multiply_n_lines(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                                 Strides strides);

enum class Fault {
  none,
  unswizzled,           // a's vectors lie in order
  missing_proxy_fence,  // after writing the operands
  missing_fence,        // wgmma.fence
  missing_commit,
  late_wait,          // after d is read
  missing_wait,       // at all
  operand_in_use,     // each warp writes b once its own part is done
  disagreeing_warps,  // on an operand
  absent_warps,       // two of four issue it
  outside_of_shared,  // b lies behind the end of shared memory
};

// c [64, 64] = a [64, 64] * b [64, 64], whose lines hold k. 128 threads, 16 KB of shared memory.
__global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, Fault fault);

}  // namespace simt::warpgroups
