// sampling: what a request asks of each draw, checked once.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config.h"

namespace dhs {

// As users of this field know them. kernels/sampling/sampling.h defines the order and the ties.
struct SamplingParams {
  float temperature = 1.0f;      // 0: greedy
  float top_p = 1.0f;            // (0, 1]
  int32_t top_k = 0;             // 0: off
  float min_p = 0.0f;            // [0, 1]
  std::optional<uint64_t> seed;  // absent: the engine draws one
  int32_t max_tokens = 0;        // >= 1 once validated
  int32_t min_tokens = 0;        // EOS and stop tokens cannot be drawn before
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool logprobs = false;         // report the drawn token's
  int32_t num_top_logprobs = 0;  // and this many alternatives'
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

// One drawn token.
struct TokenOutput {
  TokenId token = 0;
  float logprob = 0;              // log softmax of the raw logits
  std::vector<TokenLogprob> top;  // num_top_logprobs alternatives, best first
};

// INVALID_ARGUMENT naming the field, the value and the limit. Floats must be finite.
absl::Status validate(const SamplingParams& params, const LimitsConfig& limits, int64_t vocab_size);

}  // namespace dhs
