// markov_head on CUDA. A step has few rows: all three are bound by latency.
//
//   markov_gate, markov_cell   one thread per column, grid (column blocks, rows), 128 threads
//   confidence                 one block per row, 256 threads, a fixed tree over their sums
#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/markov_head/markov_head.h"

namespace dhs {
namespace {

constexpr int kThreads = 128;
constexpr int kConfidenceThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__global__ void __launch_bounds__(kThreads) markov_gate_kernel(MarkovGateParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.out.sizes[1]) return;
  const int64_t row = blockIdx.y;
  params.out.row(row)[i] = sigmoid(params.gate.row(row)[i] + params.bias[i]) * params.e.row(row)[i];
}

__global__ void __launch_bounds__(kThreads) markov_cell_kernel(MarkovCellParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t r = params.out.sizes[1];
  if (i >= r) return;
  const float* joint = params.joint.row(blockIdx.y);
  float& state = params.state.row(blockIdx.y)[i];
  const float g = sigmoid(joint[i] + params.bias[i]);
  const float candidate = tanhf(joint[r + i] + params.bias[r + i]);
  state = g * state + (1.0f - g) * candidate;
  params.out.row(blockIdx.y)[i] = tanhf(joint[2 * r + i] + params.bias[2 * r + i]);
}

__global__ void __launch_bounds__(kConfidenceThreads) confidence_kernel(ConfidenceParams params) {
  __shared__ float of_warps[kConfidenceThreads / 32];
  const int64_t row = blockIdx.x, hidden_dim = params.y.sizes[1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < hidden_dim; i += kConfidenceThreads) {
    sum = fmaf(params.weight[i], params.y.row(row)[i], sum);
  }
  for (int64_t i = threadIdx.x; i < params.e.sizes[1]; i += kConfidenceThreads) {
    sum = fmaf(params.weight[hidden_dim + i], params.e.row(row)[i], sum);
  }
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bits);
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = params.bias;
  for (float part : of_warps) sum += part;
  params.out(row) = sigmoid(sum / params.temperature);
}

dim3 grid_of(const TensorView<float, 2>& out) {
  return dim3(static_cast<unsigned>((out.sizes[1] + kThreads - 1) / kThreads),
              static_cast<unsigned>(out.sizes[0]));
}

}  // namespace

void launch_markov_gate_cuda(const MarkovGateParams& params, Stream stream) {
  cuda::launch("markov_gate", markov_gate_kernel,
               {.grid = grid_of(params.out), .block = dim3(kThreads)}, stream, params);
}

void launch_markov_cell_cuda(const MarkovCellParams& params, Stream stream) {
  cuda::launch("markov_cell", markov_cell_kernel,
               {.grid = grid_of(params.out), .block = dim3(kThreads)}, stream, params);
}

void launch_confidence_cuda(const ConfidenceParams& params, Stream stream) {
  cuda::launch(
      "confidence", confidence_kernel,
      {.grid = dim3(static_cast<unsigned>(params.out.sizes[0])), .block = dim3(kConfidenceThreads)},
      stream, params);
}

}  // namespace dhs
