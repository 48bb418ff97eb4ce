// sampling: what a request asks of each draw, checked once.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config.h"

namespace dhs {

// Added to the logit of a token before every draw.
struct LogitBias {
  TokenId token = 0;
  float bias = 0;
};

// As users of this field know them. kernels/sampling/sampling.h defines the order and the ties.
//
// Logits change before anything else is done with them, in this order. A token that occurs in the
// prompt or in the output: divided by repetition_penalty when above 0, multiplied by it otherwise.
// A token that occurs n > 0 times in the output: less presence_penalty + n * frequency_penalty.
// Then logit_bias.
struct SamplingParams {
  float temperature = 1.0f;           // 0: greedy
  float top_p = 1.0f;                 // (0, 1]
  int32_t top_k = 0;                  // 0: off
  float min_p = 0.0f;                 // [0, 1]
  float repetition_penalty = 1.0f;    // (0, 10]; 1: off
  float presence_penalty = 0.0f;      // [-2, 2]
  float frequency_penalty = 0.0f;     // [-2, 2]
  std::vector<LogitBias> logit_bias;  // at most kMaxLogitBiases, each token once, [-100, 100]
  std::optional<uint64_t> seed;       // absent: the engine draws one
  int32_t max_tokens = 0;             // >= 1 once validated
  int32_t min_tokens = 0;             // EOS and stop tokens cannot be drawn before
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool logprobs = false;         // report the drawn token's
  int32_t num_top_logprobs = 0;  // and this many alternatives'
};

inline constexpr int64_t kMaxLogitBiases = 1024;

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

// One drawn token.
struct TokenOutput {
  TokenId token = 0;
  float logprob = 0;              // log softmax of the logits, penalties and biases applied
  std::vector<TokenLogprob> top;  // num_top_logprobs alternatives, best first
};

// INVALID_ARGUMENT naming the field, the value and the limit. Floats must be finite.
absl::Status validate(const SamplingParams& params, const LimitsConfig& limits, int64_t vocab_size);

}  // namespace dhs
