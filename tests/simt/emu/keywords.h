// CUDA's types from the toolkit's own headers, and CUDA's qualifiers as plain C++.
#pragma once

// These headers need no CUDA library: types, error codes and host-side conversions only.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#undef __grid_constant__

#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__

// A thread_local at block scope is implicitly static, so `__shared__ float s[32];` needs no change.
// It is shared by exactly the threads of one block because a block never leaves its OS thread and
// an OS thread runs one block at a time.
#define __shared__ thread_local

// For the emulator's own inline functions: the checked build must see the kernel's accesses, not
// ours. Such a function must not be always_inline, or its body would be instrumented after all.
#define DHS_SIMT_UNCHECKED __attribute__((no_sanitize("thread")))
