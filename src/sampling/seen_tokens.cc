#include <algorithm>

#include "dhisparse/sampling.h"

namespace dhs {
namespace {

// In rising order. Linear, since prompts may be long.
std::vector<TokenId> distinct(std::span<const TokenId> tokens) {
  if (tokens.empty()) return {};
  std::vector<bool> is_there(*std::max_element(tokens.begin(), tokens.end()) + 1);
  for (const TokenId token : tokens) is_there[token] = true;
  std::vector<TokenId> found;
  for (size_t token = 0; token < is_there.size(); ++token) {
    if (is_there[token]) found.push_back(static_cast<TokenId>(token));
  }
  return found;
}

}  // namespace

SeenTokens::SeenTokens(const SamplingParams& params, std::span<const TokenId> prompt)
    : has_penalties_(params.has_penalties()) {
  if (params.repetition_penalty == 1) return;
  for (const TokenId token : distinct(prompt)) {
    tokens_.push_back({.token = token, .is_in_prompt = true});
  }
}

void SeenTokens::add_output(TokenId token) {
  if (!has_penalties_) return;
  auto place =
      std::lower_bound(tokens_.begin(), tokens_.end(), token,
                       [](const SeenToken& seen, TokenId before) { return seen.token < before; });
  if (place == tokens_.end() || place->token != token) {
    place = tokens_.insert(place, {.token = token});
  }
  ++place->num_in_output;
}

absl::Status validate_adjusted_tokens(const SamplingParams& params, std::span<const TokenId> prompt,
                                      const LimitsConfig& limits, int64_t vocab_size) {
  const bool penalizes_prompt = params.repetition_penalty != 1;
  const int64_t num_prompt = penalizes_prompt ? std::ssize(distinct(prompt)) : 0;
  const int64_t num_output = params.has_penalties() ? params.max_tokens : 0;
  const int64_t num_biases = std::ssize(params.logit_bias);
  const int64_t most = std::min(num_prompt + num_output + num_biases, vocab_size);
  if (most <= limits.max_adjusted_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "sampling: penalties and logit_bias may change the logits of ", most, " tokens (", num_prompt,
      " of the prompt, max_tokens ", num_output, ", ", num_biases, " biases); the limit is ",
      limits.max_adjusted_tokens, " (limits.max_adjusted_tokens); ",
      num_output > 0 ? "lower max_tokens, leave the penalties out" : "send fewer biases",
      " or raise the limit"));
}

}  // namespace dhs
