// Kernels that measure the emulator itself.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::timing {

__global__ void barriers(int* x, int iterations);
__global__ void shuffles(int* x, int iterations);
__global__ void scale(float* x, int n);

}  // namespace simt::timing
