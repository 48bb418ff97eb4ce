// Loads and stores with cache hints, and fences.
#pragma once

#include "simt/emu/runtime.h"

// Hints change no result. Always inline, so that the access is the kernel's own, at its line.
#define DHS_SIMT_LOAD(name)                  \
  template <class T>                         \
  __forceinline__ T name(const T* address) { \
    return *address;                         \
  }
#define DHS_SIMT_STORE(name)                       \
  template <class T>                               \
  __forceinline__ void name(T* address, T value) { \
    *address = value;                              \
  }

DHS_SIMT_LOAD(__ldg)
DHS_SIMT_LOAD(__ldca)
DHS_SIMT_LOAD(__ldcg)
DHS_SIMT_LOAD(__ldcs)
DHS_SIMT_LOAD(__ldlu)
DHS_SIMT_LOAD(__ldcv)
DHS_SIMT_STORE(__stwb)
DHS_SIMT_STORE(__stcg)
DHS_SIMT_STORE(__stcs)
DHS_SIMT_STORE(__stwt)

#undef DHS_SIMT_LOAD
#undef DHS_SIMT_STORE

// Fences are not modelled beyond what the host does: threads of a block share one OS thread.
DHS_SIMT_UNCHECKED inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
DHS_SIMT_UNCHECKED inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}

inline void __nanosleep(unsigned) { simt::yield_thread(); }
inline void __trap(DHS_SIMT_HERE) { simt::trap(where); }
