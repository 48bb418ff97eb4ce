// Bulk asynchronous copies from global to shared memory, and the barrier objects they complete on
// (sm_90 and later). Code for older devices must not reach these functions: they trap there.
//
// A barrier has phases. One is complete when `count` arrivals and all announced bytes have come;
// wait by the phase's parity: 0 for the first, then 1, 0, ... Waiting for parity 1 on a fresh
// barrier returns at once.
//
// The emulator makes the copies when a wait observes the phase, so a missing wait reads old data.
#pragma once

#include "kernels/cuda/cuda.h"

#if defined(__CUDACC__)
#define DHS_SIMT_WHERE
#else
#define DHS_SIMT_WHERE , DHS_SIMT_HERE
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define DHS_SIMT_TRAPS 1
#else
#define DHS_SIMT_TRAPS 0
#endif

namespace simt {

// In shared memory.
using MBarrier = uint64_t;

// One thread, once; then mbarrier_fence_init() and __syncthreads().
__device__ __forceinline__ void mbarrier_init(MBarrier* barrier, unsigned count DHS_SIMT_WHERE) {
#if !defined(__CUDACC__)
  async_barrier_init(barrier, count, where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(at), "r"(count) : "memory");
#endif
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void mbarrier_fence_init() {
#if defined(__CUDACC__) && !DHS_SIMT_TRAPS
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}

// Orders this thread's ordinary accesses to shared memory before later bulk copies over it.
__device__ __forceinline__ void fence_before_bulk_copy() {
#if defined(__CUDACC__) && !DHS_SIMT_TRAPS
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#endif
}

__device__ __forceinline__ void mbarrier_arrive(MBarrier* barrier DHS_SIMT_WHERE) {
#if !defined(__CUDACC__)
  async_barrier_arrive(barrier, 0, where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(at) : "memory");
#endif
}

// Arrives and announces bytes that copies will bring in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(MBarrier* barrier,
                                                          unsigned bytes DHS_SIMT_WHERE) {
#if !defined(__CUDACC__)
  async_barrier_arrive(barrier, bytes, where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(at), "r"(bytes)
               : "memory");
#endif
}

// Whether the phase of this parity is complete. May sleep for a while before it says no.
__device__ __forceinline__ bool mbarrier_try_wait(MBarrier* barrier,
                                                  unsigned parity DHS_SIMT_WHERE) {
#if !defined(__CUDACC__)
  return async_barrier_try_wait(barrier, parity, where);
#elif DHS_SIMT_TRAPS
  __trap();
  return false;
#else
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  unsigned done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(at), "r"(parity)
      : "memory");
  return done != 0;
#endif
}

__device__ __forceinline__ void mbarrier_wait(MBarrier* barrier, unsigned parity DHS_SIMT_WHERE) {
#if defined(__CUDACC__)
  while (!mbarrier_try_wait(barrier, parity)) {
  }
#else
  while (!mbarrier_try_wait(barrier, parity, where)) {
  }
#endif
}

// One thread's copy of `bytes`, a multiple of 16 between addresses that are multiples of 16. Counts
// towards the barrier's announced bytes.
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, unsigned bytes,
                                          MBarrier* barrier DHS_SIMT_WHERE) {
#if !defined(__CUDACC__)
  bulk_async_copy(shared, global, bytes, barrier, where);
#elif DHS_SIMT_TRAPS
  __trap();
#else
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(to),
      "l"(global), "r"(bytes), "r"(at)
      : "memory");
#endif
}

}  // namespace simt

#undef DHS_SIMT_WHERE
#undef DHS_SIMT_TRAPS
