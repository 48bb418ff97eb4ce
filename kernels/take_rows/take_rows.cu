// take_rows on CUDA: grid (blocks of 1024 columns, rows), 256 threads, 4 columns per thread, whose
// loads are all in flight before the first store. No shared memory. Bound by device memory: 8 bytes
// per element, no arithmetic.
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/take_rows/take_rows.h"

namespace dhs {
namespace {

constexpr int kThreads = 256;
constexpr int kColumnsPerThread = 4;
constexpr int64_t kColumnsPerBlock = int64_t{kThreads} * kColumnsPerThread;
constexpr int64_t kMaxGridRows = 65535;

__global__ void __launch_bounds__(kThreads) take_rows_kernel(TakeRowsParams params) {
  const int64_t width = params.out.sizes[1];
  const int64_t first_column = int64_t{blockIdx.x} * kColumnsPerBlock + threadIdx.x;
  for (int64_t i = blockIdx.y; i < params.out.sizes[0]; i += gridDim.y) {
    const int64_t row = params.rows.data == nullptr ? i : params.rows(i);
    float values[kColumnsPerThread];
    for (int k = 0; k < kColumnsPerThread; ++k) {
      const int64_t column = first_column + k * kThreads;
      values[k] = row >= 0 && column < width ? params.x.row(row)[column] : 0.0f;
    }
    for (int k = 0; k < kColumnsPerThread; ++k) {
      const int64_t column = first_column + k * kThreads;
      if (column < width) params.out.row(i)[column] = values[k];
    }
  }
}

}  // namespace

void launch_take_rows_cuda(const TakeRowsParams& params, Stream stream) {
  const int64_t column_blocks = (params.out.sizes[1] + kColumnsPerBlock - 1) / kColumnsPerBlock;
  const int64_t rows = std::min(params.out.sizes[0], kMaxGridRows);
  cuda::launch("take_rows", take_rows_kernel,
               {.grid = dim3(static_cast<unsigned>(column_blocks), static_cast<unsigned>(rows)),
                .block = dim3(kThreads)},
               stream, params);
}

}  // namespace dhs
