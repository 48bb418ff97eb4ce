// grouped_conv on CUDA: one thread per element, grid (column blocks, rows), 256 threads, no shared
// memory. Bound by device memory: 8 bytes per element; the rows before and the kernel come from the
// cache. Compiled without contraction: the bits are the CPU version's.
#include "kernels/cuda/launch.h"
#include "kernels/grouped_conv/grouped_conv.h"

namespace dhs {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxGridRows = 65535;

__global__ void __launch_bounds__(kThreads) grouped_conv_kernel(GroupedConvParams params) {
  const int64_t channels = params.x.sizes[1];
  const int64_t ch = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (ch >= channels) return;
  const int64_t num_groups = channels / params.group_channels;
  const int64_t group = ch / params.group_channels;
  for (int64_t i = blockIdx.y; i < params.x.sizes[0]; i += gridDim.y) {
    const float* delta = params.delta.row(i) + group;
    float sum = (params.base_kernel[ch] + delta[0]) * params.x.row(i)[ch];
    const int64_t in_block = i % params.block_rows;
    for (int64_t t = 1; t < params.num_taps && t <= in_block; ++t) {
      const float tap = params.base_kernel[t * channels + ch] + delta[t * num_groups];
      sum += tap * params.x.row(i - t)[ch];
    }
    params.out.row(i)[ch] = sum;
  }
}

}  // namespace

void launch_grouped_conv_cuda(const GroupedConvParams& params, Stream stream) {
  const int64_t column_blocks = (params.x.sizes[1] + kThreads - 1) / kThreads;
  const int64_t rows = params.x.sizes[0] < kMaxGridRows ? params.x.sizes[0] : kMaxGridRows;
  cuda::launch("grouped_conv", grouped_conv_kernel,
               {.grid = dim3(static_cast<unsigned>(column_blocks), static_cast<unsigned>(rows)),
                .block = dim3(kThreads)},
               stream, params);
}

}  // namespace dhs
