// What penalties and biases of a request change in the logits of one draw.
//
// Of a token that was seen in the prompt or the output: scale = repetition_penalty; otherwise 1.
// Of a token n > 0 times in the output: bias = logit_bias - (presence_penalty + n *
// frequency_penalty), in f32; otherwise logit_bias. A verify row counts the drafts before it as
// output, since it is of account only where they are accepted: so its logits are those of plain
// decoding.
#pragma once

#include <span>
#include <vector>

#include "dhisparse/sampling.h"
#include "kernels/sampling/sampling.h"

namespace dhs {

// Appends to `adjustments`, in rising order of token, each token once. `drafts` are those before
// the row, sorted. Precondition: logit_bias and `seen` are in rising order.
void append_adjustments(const SamplingParams& params, std::span<const SeenToken> seen,
                        std::span<const TokenId> drafts, std::vector<LogitAdjustment>& adjustments);

}  // namespace dhs
