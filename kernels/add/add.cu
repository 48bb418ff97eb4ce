// add on CUDA: one thread per element, grid (column blocks, rows), 256 threads, no shared memory.
// Bound by device memory: 12 bytes per element, one add.
#include "kernels/add/add.h"
#include "kernels/cuda/launch.h"

namespace dhs {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxGridRows = 65535;

__global__ void add_kernel(AddParams params) {
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= params.x.sizes[1]) return;
  for (int64_t row = blockIdx.y; row < params.x.sizes[0]; row += gridDim.y) {
    params.out.row(row)[column] += params.x.row(row)[column];
  }
}

}  // namespace

void launch_add_cuda(const AddParams& params, Stream stream) {
  const int64_t column_blocks = (params.x.sizes[1] + kThreads - 1) / kThreads;
  const int64_t rows = params.x.sizes[0] < kMaxGridRows ? params.x.sizes[0] : kMaxGridRows;
  cuda::launch("add", add_kernel,
               {.grid = {unsigned(column_blocks), unsigned(rows)}, .block = kThreads}, stream,
               params);
}

}  // namespace dhs
