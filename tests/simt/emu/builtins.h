// CUDA's built-in variables and block barriers.
#pragma once

#include "simt/emu/runtime.h"

// ---------------------------------------------------------------------------- built-in variables

namespace simt {

DHS_SIMT_UNCHECKED inline uint3 thread_index() { return current_thread->thread_index; }
DHS_SIMT_UNCHECKED inline uint3 block_index() { return current_thread->block_index; }
DHS_SIMT_UNCHECKED inline dim3 block_dim() { return current_thread->block_dim; }
DHS_SIMT_UNCHECKED inline dim3 grid_dim() { return current_thread->grid_dim; }
DHS_SIMT_UNCHECKED inline unsigned linear_thread_index() { return current_thread->linear_index; }
DHS_SIMT_UNCHECKED inline int lane_index() { return current_thread->lane; }
DHS_SIMT_UNCHECKED inline void* dynamic_shared() { return current_thread->dynamic_shared; }

}  // namespace simt

#define threadIdx (simt::thread_index())
#define blockIdx (simt::block_index())
#define blockDim (simt::block_dim())
#define gridDim (simt::grid_dim())
#define warpSize 32
#define DHS_DYN_SHARED(T, name) T* name = static_cast<T*>(simt::dynamic_shared())

// -------------------------------------------------------------------------------- block barriers

inline void __syncthreads(DHS_SIMT_HERE) {
  simt::block_barrier(simt::BarrierOp::sync, false, where);
}

inline int __syncthreads_and(int predicate, DHS_SIMT_HERE) {
  return simt::block_barrier(simt::BarrierOp::all, predicate != 0, where);
}

inline int __syncthreads_or(int predicate, DHS_SIMT_HERE) {
  return simt::block_barrier(simt::BarrierOp::any, predicate != 0, where);
}

inline int __syncthreads_count(int predicate, DHS_SIMT_HERE) {
  return simt::block_barrier(simt::BarrierOp::count, predicate != 0, where);
}
