// sampling: what a request asks of each draw, checked once.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <span>
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
  // Its tokens are those that plain decoding draws with the seed, bit for bit, whatever is drafted:
  // drafts are then chosen, not drawn, and fewer of them are accepted.
  bool is_repeatable = false;
  int32_t max_tokens = 0;  // >= 1 once validated
  int32_t min_tokens = 0;  // EOS and stop tokens cannot be drawn before
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool logprobs = false;         // report the drawn token's
  int32_t num_top_logprobs = 0;  // and this many alternatives'

  // Whether logits depend on which tokens were seen before.
  bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
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

// ---- Penalties ----------------------------------------------------------------------------------

// A token that penalties apply to.
struct SeenToken {
  TokenId token = 0;
  bool is_in_prompt = false;
  int32_t num_in_output = 0;

  friend bool operator==(const SeenToken&, const SeenToken&) = default;
};

// The tokens of one request that its penalties apply to: those of the prompt where it has a
// repetition penalty, those of the output where it has any penalty. Follows the output token by
// token; a token costs time in the number of distinct ones.
class SeenTokens {
 public:
  SeenTokens() = default;  // of a request without penalties
  // Precondition: tokens are >= 0.
  SeenTokens(const SamplingParams& params, std::span<const TokenId> prompt);

  void add_output(TokenId token);
  // In rising order of token, each once. Valid until add_output().
  std::span<const SeenToken> tokens() const { return tokens_; }

 private:
  bool has_penalties_ = false;
  std::vector<SeenToken> tokens_;
};

// INVALID_ARGUMENT when the request could come to adjust the logits of more than
// limits.max_adjusted_tokens tokens: the distinct ones of its prompt, as far as penalties apply to
// them, its output and its biases. Precondition: validate() passed; tokens are in the vocabulary.
absl::Status validate_adjusted_tokens(const SamplingParams& params, std::span<const TokenId> prompt,
                                      const LimitsConfig& limits, int64_t vocab_size);

}  // namespace dhs
