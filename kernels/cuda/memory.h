// 16-byte accesses to global memory with cache hints: plain accesses for the emulator.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt {

// Reads 16 bytes that are used once and that nobody writes while the kernel runs, past L1. Device
// memory, or host memory that the device can read.
__device__ __forceinline__ uint4 load_streaming_16(const void* gmem) {
#if defined(__CUDACC__)
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(gmem));
  return value;
#else
  return *static_cast<const uint4*>(gmem);
#endif
}

__device__ __forceinline__ void store_16(void* gmem, uint4 value) {
  *static_cast<uint4*>(gmem) = value;
}

// Writes 16 bytes that this kernel does not read again.
__device__ __forceinline__ void store_streaming_16(void* gmem, uint4 value) {
#if defined(__CUDACC__)
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};\n" ::"l"(gmem), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
#else
  *static_cast<uint4*>(gmem) = value;
#endif
}

}  // namespace simt
