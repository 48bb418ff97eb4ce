// softmax on CUDA: one block per row, grid num_rows, 32 to 1024 threads by width, no dynamic shared
// memory. A row costs three passes, the first from device memory, the others mostly from the L2
// cache: with few rows bound by what one SM can read. Compiled without contraction.
// Stages: find the largest, write terms and sum them, scale.
#include <algorithm>

#include "kernels/activation/device_exp.h"
#include "kernels/cuda/launch.h"
#include "kernels/softmax/softmax.h"

namespace dhs {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kMaxWarps = 32;
constexpr int64_t kColumnsPerThread = 8;  // what a block is sized for, at least

struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};

// combine() over the values of all threads, to every thread, in a fixed order.
template <class T, class Combine>
__device__ T reduce_block(T value, Combine combine) {
  __shared__ T of_warps[kMaxWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int bits = 16; bits > 0; bits /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, bits));
  }
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  value = of_warps[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) value = combine(value, of_warps[w]);
  __syncthreads();
  return value;
}

__device__ void choose(float largest, const float* x, int64_t width, float* out) {
  int64_t not_after = -width;  // minus the lowest column that holds the largest
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    if (x[i] == largest && -i > not_after) not_after = -i;
  }
  const int64_t chosen = -reduce_block(not_after, Larger{});
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = i == chosen ? 1.0f : 0.0f;
}

__global__ void softmax_kernel(SoftmaxParams params) {
  const int64_t width = params.logits.sizes[1];
  const float* x = params.logits.row(blockIdx.x);
  float* out = params.out.row(blockIdx.x);
  const float temperature = params.temperature(blockIdx.x);
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) largest = Larger{}(largest, x[i]);
  largest = reduce_block(largest, Larger{});
  if (temperature == 0) return choose(largest, x, width, out);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float term = device_exp((x[i] - largest) / temperature);
    sum += term;
    out[i] = term;
  }
  const auto inverse = static_cast<float>(1 / reduce_block(double{sum}, Sum{}));
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) out[i] *= inverse;
}

}  // namespace

void launch_softmax_cuda(const SoftmaxParams& params, Stream stream) {
  const int64_t width = params.logits.sizes[1];
  if (width == 0) return;
  const int64_t warps = std::clamp<int64_t>(width / kColumnsPerThread / 32, 1, kMaxWarps);
  cuda::launch("softmax", softmax_kernel,
               {.grid = dim3(static_cast<unsigned>(params.logits.sizes[0])),
                .block = dim3(static_cast<unsigned>(warps * 32))},
               stream, params);
}

}  // namespace dhs
