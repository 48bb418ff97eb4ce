// Asynchronous copies from global to shared memory (sm_80 and later).
//
// The emulator defers each copy to the wait for its group, so a missing wait reads old data.
#pragma once

#include "kernels/cuda/cuda.h"

#if defined(__CUDACC__)
#define DHS_SIMT_WHERE
#else
#define DHS_SIMT_WHERE , DHS_SIMT_HERE
#endif

namespace simt {

// Copies 16 bytes past L1; both addresses are multiples of 16.
__device__ __forceinline__ void cp_async_16(void* shared, const void* global DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(global) : "memory");
#else
  async_copy(shared, global, {16, 16}, where);
#endif
}

// Copies the first `valid_bytes` (0 to 16) and fills the rest of the 16 bytes with zeros. With 0
// the source is not read, but must still be a global address.
__device__ __forceinline__ void cp_async_16_zero_fill(void* shared, const void* global,
                                                      unsigned valid_bytes DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global),
               "r"(valid_bytes)
               : "memory");
#else
  async_copy(shared, global, {16, valid_bytes}, where);
#endif
}

// Copies 8 bytes; both addresses are multiples of 8.
__device__ __forceinline__ void cp_async_8(void* shared, const void* global DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;\n" ::"r"(to), "l"(global) : "memory");
#else
  async_copy(shared, global, {8, 8}, where);
#endif
}

// Copies 4 bytes; both addresses are multiples of 4.
__device__ __forceinline__ void cp_async_4(void* shared, const void* global DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(global) : "memory");
#else
  async_copy(shared, global, {4, 4}, where);
#endif
}

// Closes the group of the copies issued since the last commit.
__device__ __forceinline__ void cp_async_commit_group() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#else
  async_commit();
#endif
}

// Waits until at most `Pending` of this thread's latest groups are unfinished. Other threads'
// copies need a barrier on top.
template <int Pending>
__device__ __forceinline__ void cp_async_wait_group() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
#else
  async_wait(Pending);
#endif
}

}  // namespace simt

#undef DHS_SIMT_WHERE
