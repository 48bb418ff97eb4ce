#include <algorithm>
#include <vector>

#include "dhisparse/sampling.h"

namespace dhs {
namespace {

absl::Status invalid(absl::string_view field, const std::string& value, absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.", field, " is ", value, "; allowed: ", allowed));
}

// True inside [low, high]; false for NaN.
bool within(float value, float low, float high) { return value >= low && value <= high; }

absl::Status validate_shape(const SamplingParams& params) {
  if (!within(params.temperature, 0.0f, 100.0f)) {
    return invalid("temperature", absl::StrCat(params.temperature), "0 (greedy) to 100");
  }
  if (!within(params.top_p, 0.0f, 1.0f) || params.top_p == 0.0f) {
    return invalid("top_p", absl::StrCat(params.top_p), "above 0, at most 1");
  }
  if (!within(params.min_p, 0.0f, 1.0f)) {
    return invalid("min_p", absl::StrCat(params.min_p), "0 to 1");
  }
  if (params.top_k < 0) {
    return invalid("top_k", absl::StrCat(params.top_k), "0 (off) or more");
  }
  return absl::OkStatus();
}

absl::Status validate_penalties(const SamplingParams& params) {
  if (!within(params.repetition_penalty, 0.0f, 10.0f) || params.repetition_penalty == 0.0f) {
    return invalid("repetition_penalty", absl::StrCat(params.repetition_penalty),
                   "above 0, at most 10 (1: off)");
  }
  if (!within(params.presence_penalty, -2.0f, 2.0f)) {
    return invalid("presence_penalty", absl::StrCat(params.presence_penalty), "-2 to 2");
  }
  if (!within(params.frequency_penalty, -2.0f, 2.0f)) {
    return invalid("frequency_penalty", absl::StrCat(params.frequency_penalty), "-2 to 2");
  }
  return absl::OkStatus();
}

absl::Status validate_biases(const std::vector<LogitBias>& biases, int64_t vocab_size) {
  if (std::ssize(biases) > kMaxLogitBiases) {
    return invalid("logit_bias", absl::StrCat(biases.size(), " tokens"),
                   absl::StrCat("at most ", kMaxLogitBiases));
  }
  std::vector<TokenId> tokens;
  for (const LogitBias& entry : biases) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return invalid("logit_bias", absl::StrCat("for token ", entry.token),
                     absl::StrCat("0 to ", vocab_size - 1, " (the vocabulary)"));
    }
    if (!within(entry.bias, -100.0f, 100.0f)) {
      return invalid("logit_bias", absl::StrCat(entry.bias, " for token ", entry.token),
                     "-100 to 100");
    }
    tokens.push_back(entry.token);
  }
  std::sort(tokens.begin(), tokens.end());
  const auto twice = std::adjacent_find(tokens.begin(), tokens.end());
  if (twice != tokens.end()) {
    return invalid("logit_bias", absl::StrCat("twice for token ", *twice), "each token once");
  }
  return absl::OkStatus();
}

absl::Status validate_lengths(const SamplingParams& params) {
  if (params.max_tokens < 1) {
    return invalid("max_tokens", absl::StrCat(params.max_tokens), "1 or more");
  }
  if (params.min_tokens < 0 || params.min_tokens > params.max_tokens) {
    return invalid("min_tokens", absl::StrCat(params.min_tokens),
                   absl::StrCat("0 to max_tokens (", params.max_tokens, ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const SamplingParams& params, const LimitsConfig& limits,
                      int64_t vocab_size) {
  DHS_RETURN_IF_ERROR(validate_shape(params));
  DHS_RETURN_IF_ERROR(validate_penalties(params));
  DHS_RETURN_IF_ERROR(validate_biases(params.logit_bias, vocab_size));
  DHS_RETURN_IF_ERROR(validate_lengths(params));
  if (params.num_top_logprobs < 0 || params.num_top_logprobs > limits.max_logprobs) {
    return invalid("top_logprobs", absl::StrCat(params.num_top_logprobs),
                   absl::StrCat("0 to ", limits.max_logprobs, " (limits.max_logprobs)"));
  }
  if (static_cast<int64_t>(params.stop_token_ids.size()) > limits.max_stop_token_ids) {
    return invalid(
        "stop_token_ids", absl::StrCat(params.stop_token_ids.size(), " ids"),
        absl::StrCat("at most ", limits.max_stop_token_ids, " (limits.max_stop_token_ids)"));
  }
  for (TokenId token : params.stop_token_ids) {
    if (token < 0 || token >= vocab_size) {
      return invalid("stop_token_ids", absl::StrCat("token ", token),
                     absl::StrCat("0 to ", vocab_size - 1, " (the vocabulary)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace dhs
