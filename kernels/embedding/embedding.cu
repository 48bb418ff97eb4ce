// embedding on CUDA: grid (blocks of 1024 columns, rows), 256 threads, 4 columns per thread, whose
// loads are all in flight before the first store. No shared memory. Bound by device memory: 4 bytes
// written and one table element read per element, no arithmetic.
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/embedding/embedding.h"

namespace dhs {
namespace {

constexpr int kThreads = 256;
constexpr int kColumnsPerThread = 4;
constexpr int64_t kColumnsPerBlock = int64_t{kThreads} * kColumnsPerThread;
constexpr int64_t kMaxGridRows = 65535;

__device__ float table_value(const EmbeddingParams& params, int64_t i) {
  if (params.dtype == DType::kF32) return static_cast<const float*>(params.table)[i];
  const uint32_t bits = static_cast<const Bf16*>(params.table)[i];
  return __uint_as_float(bits << 16);
}

__global__ void __launch_bounds__(kThreads) embedding_kernel(EmbeddingParams params) {
  const int64_t width = params.out.sizes[1];
  const int64_t first_column = int64_t{blockIdx.x} * kColumnsPerBlock + threadIdx.x;
  for (int64_t row = blockIdx.y; row < params.out.sizes[0]; row += gridDim.y) {
    const bool is_padding = params.positions(row) < 0;
    const int64_t first = is_padding ? 0 : params.tokens(row) * width;
    float values[kColumnsPerThread];
    for (int k = 0; k < kColumnsPerThread; ++k) {
      const int64_t column = first_column + k * kThreads;
      const bool is_read = column < width && !is_padding;
      values[k] = is_read ? table_value(params, first + column) : 0.0f;
    }
    for (int k = 0; k < kColumnsPerThread; ++k) {
      const int64_t column = first_column + k * kThreads;
      if (column < width) params.out.row(row)[column] = values[k];
    }
  }
}

}  // namespace

void launch_embedding_cuda(const EmbeddingParams& params, Stream stream) {
  const int64_t column_blocks = (params.out.sizes[1] + kColumnsPerBlock - 1) / kColumnsPerBlock;
  const int64_t rows = std::min(params.out.sizes[0], kMaxGridRows);
  cuda::launch("embedding", embedding_kernel,
               {.grid = dim3(static_cast<unsigned>(column_blocks), static_cast<unsigned>(rows)),
                .block = dim3(kThreads)},
               stream, params);
}

}  // namespace dhs
