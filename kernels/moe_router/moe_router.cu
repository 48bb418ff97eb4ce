// moe_router on CUDA: one warp per token, up to 4 tokens per block, 4 * (2 * num_experts +
// num_groups + top_k) bytes of shared memory per token (4.2 KB for 512 experts).
// Bytes: 4 per expert read, 8 per choice written. Bound by latency: every choice is a pass of the
// warp over num_experts / 32 keys and two warp reductions.
//
// The sigmoid's exponential is taken in f64 and rounded to f32, which gives the bits of the C
// library's expf but for one argument in some thousands, where it is one unit off.
// Stages: load_token, keep_groups, choose, write_weights.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/launch.h"
#include "kernels/moe_router/moe_router.h"

namespace dhs {
namespace {

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int64_t kMaxTokensPerBlock = 4;
constexpr uint32_t kClosed = 0;  // the key of what cannot be chosen (any more)
constexpr float kInfinity = INFINITY;

// One token's part of the shared memory.
struct Token {
  float* scores;         // [num_experts]
  uint32_t* keys;        // [num_experts] of the choice values
  uint32_t* group_keys;  // [num_groups]
  int32_t* chosen;       // [top_k]
};

// Larger for larger values, NaN as -inf, never kClosed. No value is -0.
__device__ uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value >= -kInfinity ? value : -kInfinity);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ float value_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ int lane() { return threadIdx.x % kLanes; }

// Closes the largest of `count` keys, ties to the lowest index, and returns its index to all lanes.
__device__ int32_t take_largest(uint32_t* keys, int64_t count) {
  uint32_t best = kClosed;
  uint32_t best_idx = 0xffffffffu;
  for (int64_t i = lane(); i < count; i += kLanes) {
    if (keys[i] <= best) continue;
    best = keys[i];
    best_idx = static_cast<uint32_t>(i);
  }
  const uint32_t largest = __reduce_max_sync(kAllLanes, best);
  const uint32_t taken = __reduce_min_sync(kAllLanes, best == largest ? best_idx : 0xffffffffu);
  if (best_idx == taken) keys[taken] = kClosed;
  __syncwarp();
  return static_cast<int32_t>(taken);
}

__device__ void load_token(const MoeRouterParams& params, int64_t token_idx, const Token& token) {
  const float* bias = params.correction_bias;
  for (int64_t e = lane(); e < params.logits.sizes[1]; e += kLanes) {
    const double logit = params.logits(token_idx, e);
    const float score = 1.0f / (1.0f + static_cast<float>(exp(-logit)));
    token.scores[e] = score;
    token.keys[e] = key_of(bias != nullptr ? score + bias[e] : score);
  }
  __syncwarp();
}

// The two largest choice values of a group, summed.
__device__ float sum_of_two_best(const uint32_t* keys, int64_t count) {
  uint32_t first = keys[0], second = kClosed;
  for (int64_t i = 1; i < count; ++i) {
    second = std::max(second, std::min(first, keys[i]));
    first = std::max(first, keys[i]);
  }
  return value_of(first) + (count > 1 ? value_of(second) : 0.0f);
}

// Closes the experts of all but the best groups.
__device__ void keep_groups(const MoeRouterParams& params, const Token& token) {
  const int64_t num_experts = params.logits.sizes[1];
  const int64_t group_size = num_experts / params.num_groups;
  for (int64_t g = lane(); g < params.num_groups; g += kLanes) {
    token.group_keys[g] = key_of(sum_of_two_best(token.keys + g * group_size, group_size));
  }
  __syncwarp();
  for (int32_t i = 0; i < params.top_groups; ++i) {
    take_largest(token.group_keys, params.num_groups);
  }
  for (int64_t e = lane(); e < num_experts; e += kLanes) {
    if (token.group_keys[e / group_size] != kClosed) token.keys[e] = kClosed;
  }
  __syncwarp();
}

// The sum of the chosen scores, added in order of choice.
__device__ float choose(const MoeRouterParams& params, const Token& token) {
  float sum = 0;
  for (int64_t i = 0; i < params.experts.sizes[1]; ++i) {
    const int32_t expert = take_largest(token.keys, params.logits.sizes[1]);
    if (lane() == 0) token.chosen[i] = expert;
    sum += token.scores[expert];
  }
  __syncwarp();
  return sum;
}

__device__ void write_weights(const MoeRouterParams& params, int64_t token_idx, const Token& token,
                              float sum) {
  for (int64_t i = lane(); i < params.experts.sizes[1]; i += kLanes) {
    const int32_t expert = token.chosen[i];
    float weight = token.scores[expert];
    if (params.normalize) weight /= sum + 1e-20f;
    params.experts(token_idx, i) = expert;
    params.weights(token_idx, i) = weight * params.scale;
  }
}

__host__ __device__ int64_t words_per_token(const MoeRouterParams& params) {
  return 2 * params.logits.sizes[1] + params.num_groups + params.experts.sizes[1];
}

__global__ void moe_router_kernel(MoeRouterParams params) {
  DHS_DYN_SHARED(uint32_t, words);
  const int64_t num_experts = params.logits.sizes[1];
  const int64_t warp = threadIdx.x / kLanes;
  const int64_t token_idx = int64_t{blockIdx.x} * (blockDim.x / kLanes) + warp;
  if (token_idx >= params.logits.sizes[0]) return;
  uint32_t* own = words + warp * words_per_token(params);
  const Token token{reinterpret_cast<float*>(own), own + num_experts, own + 2 * num_experts,
                    reinterpret_cast<int32_t*>(own + 2 * num_experts + params.num_groups)};
  load_token(params, token_idx, token);
  if (params.top_groups < params.num_groups) keep_groups(params, token);
  const float sum = choose(params, token);
  write_weights(params, token_idx, token, sum);
}

}  // namespace

void launch_moe_router_cuda(const MoeRouterParams& params, Stream stream) {
  const int64_t num_tokens = params.logits.sizes[0];
  const int64_t token_bytes = words_per_token(params) * static_cast<int64_t>(sizeof(uint32_t));
  const int64_t tokens_that_fit = cuda::kDefaultSharedBytes / std::max<int64_t>(1, token_bytes);
  if (tokens_that_fit == 0) {
    std::fprintf(stderr, "moe_router: %lld experts need more shared memory than there is\n",
                 static_cast<long long>(params.logits.sizes[1]));
    std::abort();
  }
  // Few tokens: a block each, so that they spread over the device.
  const int64_t spread = std::max<int64_t>(1, num_tokens / std::max(1, stream.num_sms));
  const int64_t tokens_per_block = std::min({kMaxTokensPerBlock, tokens_that_fit, spread});
  cuda::launch(
      "moe_router", moe_router_kernel,
      {.grid = static_cast<unsigned>((num_tokens + tokens_per_block - 1) / tokens_per_block),
       .block = static_cast<unsigned>(tokens_per_block * kLanes),
       .shared_bytes = tokens_per_block * token_bytes},
      stream, params);
}

}  // namespace dhs
