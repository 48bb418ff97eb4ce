// activation on CUDA: grid (column blocks, rows), 256 threads of 4 columns each, no shared memory.
// Bound by device memory: 12 bytes and about 25 FLOPs per output element. Compiled without
// contraction: the bits are the CPU version's.
#include <algorithm>

#include "kernels/activation/activation.h"
#include "kernels/activation/device_exp.h"
#include "kernels/cuda/launch.h"

namespace dhs {
namespace {

constexpr int kThreads = 256;
constexpr int kColumnsPerThread = 4;
constexpr int64_t kColumnsPerBlock = kThreads * kColumnsPerThread;
constexpr int64_t kMaxGridRows = 65535;

__global__ void swiglu_kernel(SwigluParams params) {
  const int64_t width = params.out.sizes[1];
  const int64_t first = blockIdx.x * kColumnsPerBlock + threadIdx.x;
  for (int64_t row = blockIdx.y; row < params.out.sizes[0]; row += gridDim.y) {
    const float* gate = params.gate_up.row(row);
    float* out = params.out.row(row);
    for (int i = 0; i < kColumnsPerThread; ++i) {
      const int64_t column = first + i * kThreads;
      if (column >= width) break;
      const float g = gate[column];  // read before out is written: they may be the same
      out[column] = g / (1.0f + device_exp(-g)) * gate[width + column];
    }
  }
}

}  // namespace

void launch_swiglu_cuda(const SwigluParams& params, Stream stream) {
  const int64_t width = params.out.sizes[1];
  const auto column_blocks =
      static_cast<unsigned>((width + kColumnsPerBlock - 1) / kColumnsPerBlock);
  const auto rows = static_cast<unsigned>(std::min(params.out.sizes[0], kMaxGridRows));
  cuda::launch("swiglu", swiglu_kernel, {.grid = {column_blocks, rows}, .block = kThreads}, stream,
               params);
}

}  // namespace dhs
