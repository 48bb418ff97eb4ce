// feed_tokens on CUDA: one thread per row, 256 threads, no shared memory. A few hundred bytes: the
// launch is the cost.
#include "kernels/cuda/launch.h"
#include "kernels/feed_tokens/feed_tokens.h"

namespace dhs {
namespace {

constexpr int kThreads = 256;

__global__ void feed_tokens_kernel(FeedTokensParams params) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= params.tokens.sizes[0]) return;
  const int32_t draw = params.draw_of_row(row);
  if (draw >= 0) params.tokens(row) = params.drawn(draw);
}

}  // namespace

void launch_feed_tokens_cuda(const FeedTokensParams& params, Stream stream) {
  const int64_t blocks = (params.tokens.sizes[0] + kThreads - 1) / kThreads;
  cuda::launch("feed_tokens", feed_tokens_kernel, {.grid = unsigned(blocks), .block = kThreads},
               stream, params);
}

}  // namespace dhs
