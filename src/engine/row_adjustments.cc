#include "engine/row_adjustments.h"

#include <algorithm>
#include <limits>

namespace dhs {
namespace {

constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();

TokenId first_of(std::span<const SeenToken> seen) {
  return seen.empty() ? kNoToken : seen.front().token;
}
TokenId first_of(std::span<const LogitBias> biases) {
  return biases.empty() ? kNoToken : biases.front().token;
}
TokenId first_of(std::span<const TokenId> drafts) {
  return drafts.empty() ? kNoToken : drafts.front();
}

}  // namespace

void append_adjustments(const SamplingParams& params, std::span<const SeenToken> seen,
                        std::span<const TokenId> drafts,
                        std::vector<LogitAdjustment>& adjustments) {
  std::span<const LogitBias> biases = params.logit_bias;
  if (!params.has_penalties()) seen = {}, drafts = {};
  while (true) {
    const TokenId token = std::min({first_of(seen), first_of(drafts), first_of(biases)});
    if (token == kNoToken) return;
    const bool is_seen = token == first_of(seen) || token == first_of(drafts);
    int32_t num_in_output = 0;
    if (first_of(seen) == token) {
      num_in_output = seen.front().num_in_output;
      seen = seen.subspan(1);
    }
    for (; first_of(drafts) == token; drafts = drafts.subspan(1)) ++num_in_output;
    LogitAdjustment adjustment{.token = token};
    if (is_seen) adjustment.scale = params.repetition_penalty;
    if (first_of(biases) == token) {
      adjustment.bias = biases.front().bias;
      biases = biases.subspan(1);
    }
    if (num_in_output > 0) {
      adjustment.bias -=
          params.presence_penalty + static_cast<float>(num_in_output) * params.frequency_penalty;
    }
    adjustments.push_back(adjustment);
  }
}

}  // namespace dhs
