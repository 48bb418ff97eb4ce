// One kernel source, two compilers.
//
// Kernels include this header and nothing else from CUDA. nvcc sees the real thing; any other
// compiler sees an emulator that runs one fiber per CUDA thread.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

// Names the launch's dynamic shared memory.
#define DHS_DYN_SHARED(T, name) extern __shared__ T name[]

namespace simt {

// What <<<>>> does, spelled so that both compilers understand it.
template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, Args&&... args) {
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Params>(args)...);
  return cudaGetLastError();
}

}  // namespace simt

#else

#include "simt/emu/keywords.h"
// keywords.h comes first: it must have the last word on CUDA's qualifiers.
#include "simt/emu/atomics.h"
#include "simt/emu/intrinsics.h"
#include "simt/emu/launch.h"
#include "simt/emu/runtime.h"

#endif
