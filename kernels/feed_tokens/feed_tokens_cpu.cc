#include "kernels/cuda/dispatch.h"
#include "kernels/feed_tokens/feed_tokens.h"

namespace dhs {
namespace {

void launch_feed_tokens_cpu(const FeedTokensParams& params) {
  for (int64_t i = 0; i < params.tokens.sizes[0]; ++i) {
    const int32_t draw = params.draw_of_row(i);
    if (draw >= 0) params.tokens(i) = params.drawn(draw);
  }
}

}  // namespace

DHS_LAUNCHER(launch_feed_tokens, FeedTokensParams)

}  // namespace dhs
