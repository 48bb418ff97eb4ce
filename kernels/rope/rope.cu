// rope on CUDA: one block per token and group of 64 heads, 128 threads, 8 * rope_dim / 2 bytes of
// shared memory. Many tokens: bound by device memory, 8 bytes and 6 FLOPs per turned element. Few:
// by one sine and cosine in f64 per pair, which the heads of a block share. The turn itself is
// compiled without contraction, as on the CPU.
// Stages: load_turns, then turn_heads.
#include "kernels/cuda/launch.h"
#include "kernels/rope/rope.h"

namespace dhs {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kHeadsPerBlock = 64;

// turns: the cosines, then the sines, of all pairs.
__device__ void load_turns(const RopeParams& params, int32_t position, float* turns) {
  const int num_pairs = params.rope_dim / 2;
  for (int i = threadIdx.x; i < num_pairs; i += kThreads) {
    double sine, cosine;
    sincos(position * params.inverse_frequency[i], &sine, &cosine);
    turns[i] = static_cast<float>(cosine * params.magnitude);
    turns[num_pairs + i] = static_cast<float>(sine * params.magnitude);
  }
}

__device__ void turn_heads(const RopeParams& params, int64_t token, const float* turns) {
  const int num_pairs = params.rope_dim / 2;
  const bool is_interleaved = params.pairing == RopePairing::kInterleaved;
  const int64_t first_head = blockIdx.y * kHeadsPerBlock;
  int64_t num_heads = params.x.sizes[1] - first_head;
  if (num_heads > kHeadsPerBlock) num_heads = kHeadsPerBlock;
  for (int i = threadIdx.x; i < static_cast<int>(num_heads) * num_pairs; i += kThreads) {
    const int pair = i % num_pairs;
    float* x = params.x.row(token) + (first_head + i / num_pairs) * params.x.strides[1];
    float& first = x[is_interleaved ? 2 * pair : pair];
    float& second = x[is_interleaved ? 2 * pair + 1 : pair + num_pairs];
    const float a = first, b = second;
    const float cosine = turns[pair], sine = turns[num_pairs + pair];
    first = a * cosine - b * sine;
    second = a * sine + b * cosine;
  }
}

__global__ void rope_kernel(RopeParams params) {
  DHS_DYN_SHARED(float, turns);
  const int32_t position = params.positions(blockIdx.x);
  if (position < 0) return;
  load_turns(params, position, turns);
  __syncthreads();
  turn_heads(params, blockIdx.x, turns);
}

}  // namespace

void launch_rope_cuda(const RopeParams& params, Stream stream) {
  if (params.rope_dim == 0) return;
  const int64_t head_groups = (params.x.sizes[1] + kHeadsPerBlock - 1) / kHeadsPerBlock;
  cuda::launch(
      "rope", rope_kernel,
      {.grid = {static_cast<unsigned>(params.x.sizes[0]), static_cast<unsigned>(head_groups)},
       .block = kThreads,
       .shared_bytes = params.rope_dim * static_cast<int64_t>(sizeof(float))},
      stream, params);
}

}  // namespace dhs
