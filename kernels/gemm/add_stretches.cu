// add_stretches: the second kernel of a product whose stretches of k ran in blocks of their own.
// One thread per output, 256 threads, grid (columns of all heads / 256, rows), no shared memory.
// Bound by memory: 4 bytes per stretch and output, mostly in L2.
#include "kernels/gemm/tile_launch.h"

namespace dhs::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxGridRows = 65535;

__global__ void __launch_bounds__(kThreads) add_stretches_kernel(GemmProblem p) {
  const int64_t row_floats = p.num_heads * p.n;
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= row_floats) return;
  int64_t end_row = p.end_row;
  if (p.offsets != nullptr && p.offsets[p.num_groups] < end_row) end_row = p.offsets[p.num_groups];
  const int64_t stretch_floats = (p.end_row - p.first_row) * row_floats;
  for (int64_t row = p.first_row + blockIdx.y; row < end_row; row += gridDim.y) {
    const float* partial = p.partials + (row - p.first_row) * row_floats + column;
    float sum = 0;
    for (int64_t stretch = 0; stretch < p.num_stretches; ++stretch) {
      sum += partial[stretch * stretch_floats];
    }
    const int64_t head = column / p.n;
    p.out[row * p.out_row_stride + head * p.out_head_stride + column % p.n] = sum;
  }
}

}  // namespace

void launch_add_stretches(const GemmProblem& problem, Stream stream) {
  const int64_t column_blocks = ceil_quotient(problem.num_heads * problem.n, kThreads);
  const int64_t rows = std::min(problem.end_row - problem.first_row, kMaxGridRows);
  launch("gemm_add_stretches", add_stretches_kernel,
         {.grid = {unsigned(column_blocks), unsigned(rows)}, .block = kThreads}, stream, problem);
}

}  // namespace dhs::cuda
