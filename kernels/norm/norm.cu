// norm on CUDA: one block per row (head_norm: per head of a row), grid num_rows, 32 to 256 threads
// by width, 4 bytes of shared memory per column up to 32 KB.
//
// The sums keep the order of the CPU version, and with it its bits: threads 0 to 15 each own the
// columns of one remainder modulo 16, then the fixed tree adds them up. All threads stage the row
// through shared memory for them, in tiles. Compiled without contraction.
// Bytes: 8 per element from device memory plus, in the last pass, a read from the cache; FLOPs 4
// (rms), 7 (layer). Many rows: bound by device memory. One row: by the serial sum, about 4 clocks
// per 16 columns (1 us for 7168).
// Stages: sum_columns (layer norm: twice), then the write of all columns.
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/norm/norm.h"

namespace dhs {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kNumSums = 16;  // partial sums, one per column modulo 16
constexpr int64_t kTileColumns = 8192;
constexpr int64_t kColumnsPerThread = 16;  // what a block is sized for
constexpr int64_t kMinThreads = 32, kMaxThreads = 256;

struct Square {
  __device__ float operator()(float x) const { return x * x; }
};
struct Identity {
  __device__ float operator()(float x) const { return x; }
};
struct SquareAround {
  float mean;
  __device__ float operator()(float x) const { return (x - mean) * (x - mean); }
};

// The tree over the partial sums, which lanes 0 to 15 hold. Lane 0's result is meant.
__device__ float sum_partials(float sum) {
  for (int half = kNumSums / 2; half > 0; half /= 2) {
    sum += __shfl_down_sync(kAllLanes, sum, half);
  }
  return sum;
}

// sum + tile[first] + tile[first + 16] + ... below `count`, one after the other. Loads run ahead of
// the additions, which wait for each other.
__device__ float add_in_order(float sum, const float* tile, int first, int count) {
  constexpr int kAhead = 16;
  int i = first;
  for (; i + (kAhead - 1) * kNumSums < count; i += kAhead * kNumSums) {
    float terms[kAhead];
    for (int k = 0; k < kAhead; ++k) terms[k] = tile[i + k * kNumSums];
    for (int k = 0; k < kAhead; ++k) sum += terms[k];
  }
  for (; i < count; i += kNumSums) sum += tile[i];
  return sum;
}

// The sum of term(x[i]) over columns [0, width) in the fixed order, to every thread. A last round
// of fewer than 16 columns takes part as zeros do.
template <class Term>
__device__ float sum_columns(const float* x, int64_t width, Term term) {
  DHS_DYN_SHARED(float, tile);
  __shared__ float result;
  float sum = 0;
  for (int64_t first = 0; first < width; first += kTileColumns) {
    const bool is_last = width - first <= kTileColumns;
    const int count = static_cast<int>(is_last ? width - first : kTileColumns);
    const int padded = (count + kNumSums - 1) / kNumSums * kNumSums;
    for (int i = threadIdx.x; i < padded; i += blockDim.x) {
      tile[i] = i < count ? term(x[first + i]) : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x < kNumSums) sum = add_in_order(sum, tile, threadIdx.x, padded);
    __syncthreads();
  }
  if (threadIdx.x < 32) sum = sum_partials(sum);
  if (threadIdx.x == 0) result = sum;
  __syncthreads();
  return result;
}

struct RmsRow {
  const float* x;
  const float* weight;
  float eps;
  int64_t width;
  float* out;
};

__device__ void rms_norm_row(const RmsRow& row) {
  const float squares = sum_columns(row.x, row.width, Square{});
  const float inverse = 1.0f / sqrtf(squares / static_cast<float>(row.width) + row.eps);
  for (int64_t i = threadIdx.x; i < row.width; i += blockDim.x) {
    row.out[i] = row.weight[i] * (row.x[i] * inverse);
  }
}

__global__ void rms_norm_kernel(RmsNormParams params) {
  rms_norm_row({params.x.row(blockIdx.x), params.weight, params.eps, params.x.sizes[1],
                params.out.row(blockIdx.x)});
}

__global__ void head_norm_kernel(HeadNormParams params) {
  const int64_t token = blockIdx.x / params.x.sizes[1];
  const int64_t head = blockIdx.x % params.x.sizes[1];
  rms_norm_row({&params.x(token, head, 0), params.weight, params.eps, params.x.sizes[2],
                &params.out(token, head, 0)});
}

__global__ void layer_norm_kernel(LayerNormParams params) {
  const int64_t width = params.x.sizes[1];
  const float* x = params.x.row(blockIdx.x);
  float* out = params.out.row(blockIdx.x);
  const float mean = sum_columns(x, width, Identity{}) / static_cast<float>(width);
  // The columns beyond the last full round are summed apart, in order, as on the CPU.
  const int64_t num_full = width / kNumSums * kNumSums;
  const SquareAround square{mean};
  float tail = 0;
  for (int64_t i = num_full; i < width; ++i) tail += square(x[i]);
  const float variance = (sum_columns(x, num_full, square) + tail) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(variance + params.eps);
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    out[i] = params.weight[i] * ((x[i] - mean) * inverse) + params.bias[i];
  }
}

cuda::Shape shape_of(int64_t num_rows, int64_t width) {
  const int64_t wanted = (width / kColumnsPerThread + 31) / 32 * 32;
  const int64_t padded = (width + kNumSums - 1) / kNumSums * kNumSums;
  return {.grid = static_cast<unsigned>(num_rows),
          .block = static_cast<unsigned>(std::clamp(wanted, kMinThreads, kMaxThreads)),
          .shared_bytes = std::min(padded, kTileColumns) * static_cast<int64_t>(sizeof(float))};
}

}  // namespace

void launch_rms_norm_cuda(const RmsNormParams& params, Stream stream) {
  cuda::launch("rms_norm", rms_norm_kernel, shape_of(params.x.sizes[0], params.x.sizes[1]), stream,
               params);
}

void launch_head_norm_cuda(const HeadNormParams& params, Stream stream) {
  const int64_t num_rows = params.x.sizes[0] * params.x.sizes[1];
  cuda::launch("head_norm", head_norm_kernel, shape_of(num_rows, params.x.sizes[2]), stream,
               params);
}

void launch_layer_norm_cuda(const LayerNormParams& params, Stream stream) {
  cuda::launch("layer_norm", layer_norm_kernel, shape_of(params.x.sizes[0], params.x.sizes[1]),
               stream, params);
}

}  // namespace dhs
