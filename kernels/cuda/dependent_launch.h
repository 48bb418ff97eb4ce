// Programmatic dependent launch (sm_90 and later): a kernel may start before its predecessor in the
// stream has ended. Nothing on older devices and in the emulator, where launches follow each other.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt {

// Returns when the preceding kernel's results can be read.
__device__ __forceinline__ void grid_dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Lets the next kernel start. Its grid_dependency_wait() still waits for this one's end.
__device__ __forceinline__ void grid_dependency_launch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

}  // namespace simt
