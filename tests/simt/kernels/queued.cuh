// Small kernels to put on streams.
#pragma once

#include "kernels/cuda/cuda.h"

namespace simt::queued {

// One thread per element.
__global__ void fill(int* x, int value);
__global__ void add(int* x, int value);
// y[i] = x[n - 1 - i]
__global__ void reverse(const int* x, int* y);

}  // namespace simt::queued
