// quantize_rows: the quantising kernel, shared by the op and by the fp8 gemm, which quantises the
// heads of a row one by one, wants rows padded with zeros and, for cuBLASLt, zero rows after them.
//
// One warp per block of 128 columns, four columns a lane; 128 threads, grid (column blocks / 4,
// rows), no shared memory. Bound by device memory: 4 bytes read and 1 written per element.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/quantize/e4m3.h"
#include "kernels/quantize/quantize.h"

namespace dhs::cuda {

struct QuantizeRows {
  const float* x = nullptr;  // row i: x + i / num_heads * row_stride + i % num_heads * head_stride
  int64_t num_rows = 0;      // of all heads
  int64_t row_stride = 0;
  int64_t num_heads = 1;
  int64_t head_stride = 0;
  int64_t width = 0;
  int64_t num_zero_rows = 0;  // after the others: q and scales as of rows of zeros
  F8E4m3* q = nullptr;        // [num_rows + num_zero_rows, q_width], zeros from width on
  int64_t q_stride = 0;
  int64_t q_width = 0;
  float* scales = nullptr;  // [num_rows + num_zero_rows, ceil(width / 128)]
  int64_t scales_row_stride = 0;
  int64_t scales_block_stride = 1;
};

inline constexpr int kQuantizeThreads = 128;
inline constexpr int kQuantizeWarps = kQuantizeThreads / 32;

namespace {

__device__ __forceinline__ float warp_max(float value) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, step);
    value = other > value ? other : value;
  }
  return value;
}

__global__ void __launch_bounds__(kQuantizeThreads) quantize_kernel(QuantizeRows rows) {
  const int lane = threadIdx.x % 32;
  const int64_t block = int64_t{blockIdx.x} * kQuantizeWarps + threadIdx.x / 32;
  const int64_t first = block * kQuantizeBlock + lane * 4;
  if (block * kQuantizeBlock >= rows.q_width) return;
  for (int64_t row = blockIdx.y; row < rows.num_rows + rows.num_zero_rows; row += gridDim.y) {
    const int64_t width = row < rows.num_rows ? rows.width : 0;
    const float* x =
        rows.x + row / rows.num_heads * rows.row_stride + row % rows.num_heads * rows.head_stride;
    float values[4];
    float amax = 0;
    for (int i = 0; i < 4; ++i) {
      values[i] = first + i < width ? x[first + i] : 0.0f;
      amax = e4m3::larger_magnitude(amax, values[i]);
    }
    const float scale = e4m3::block_scale(warp_max(amax));
    const float inverse = e4m3::inverse_scale(scale);
    F8E4m3* q = rows.q + row * rows.q_stride;
    for (int i = 0; i < 4; ++i) {
      if (first + i < rows.q_width) q[first + i] = e4m3::quantized(values[i], inverse);
    }
    if (lane == 0 && first < rows.width) {
      rows.scales[row * rows.scales_row_stride + block * rows.scales_block_stride] = scale;
    }
  }
}

inline void quantize_rows(const QuantizeRows& rows, Stream stream) {
  constexpr int64_t kMaxGridRows = 65535;
  constexpr int64_t kColumns = kQuantizeWarps * kQuantizeBlock;
  const int64_t column_blocks = (rows.q_width + kColumns - 1) / kColumns;
  const int64_t num_rows = rows.num_rows + rows.num_zero_rows;
  const int64_t grid_rows = num_rows < kMaxGridRows ? num_rows : kMaxGridRows;
  launch("quantize", quantize_kernel,
         {.grid = {unsigned(column_blocks), unsigned(grid_rows)}, .block = kQuantizeThreads},
         stream, rows);
}

}  // namespace

}  // namespace dhs::cuda
