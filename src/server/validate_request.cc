#include "server/validate_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "dhisparse/sampling.h"

namespace dhs {
namespace {

constexpr size_t kMaxRequestIdBytes = 256;
constexpr size_t kMaxSaltBytes = 256;

// "<field>: <what>, the limit is <limit> (<key>); <remedy>"
absl::Status over_limit(std::string_view field, const std::string& what, int64_t limit,
                        std::string_view key, std::string_view remedy) {
  return absl::InvalidArgumentError(absl::StrCat(to_absl(field), ": ", what, ", the limit is ",
                                                 limit, " (", to_absl(key), "); ",
                                                 to_absl(remedy)));
}

absl::Status check_int32(std::string_view field, uint32_t value) {
  constexpr auto kMax = static_cast<uint32_t>(std::numeric_limits<int32_t>::max());
  if (value <= kMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(to_absl(field), ": ", value, ", the limit is ", kMax, "; ask for less"));
}

absl::Status check_request_id(const std::string& id) {
  if (id.size() <= kMaxRequestIdBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("request_id: ", id.size(), " bytes, the limit is ",
                                                 kMaxRequestIdBytes, "; shorten it"));
}

absl::Status check_salt(const std::string& salt) {
  if (salt.size() <= kMaxSaltBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("prefix_cache.salt: ", salt.size(),
                                                 " bytes, the limit is ", kMaxSaltBytes,
                                                 "; use a digest of it"));
}

absl::StatusOr<std::vector<LogitBias>> to_biases(const wire::Sampling& from,
                                                 const ModelInfo& model) {
  std::vector<LogitBias> biases;
  for (const wire::LogitBias& entry : from.logit_bias()) {
    if (entry.token_id() >= static_cast<uint64_t>(model.vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "logit_bias[", biases.size(), "]: token ", entry.token_id(), ", the limit is ",
          model.vocab_size - 1, " (the last token of the vocabulary)"));
    }
    biases.push_back({static_cast<TokenId>(entry.token_id()), entry.bias()});
  }
  return biases;
}

absl::StatusOr<SamplingParams> to_sampling(const wire::GenerateRequest& request,
                                           const RequestRules& rules) {
  const wire::Sampling& from = request.sampling();
  DHS_RETURN_IF_ERROR(check_int32("top_k", from.top_k()));
  DHS_RETURN_IF_ERROR(check_int32("max_tokens", from.max_tokens()));
  DHS_RETURN_IF_ERROR(check_int32("min_tokens", from.min_tokens()));
  DHS_RETURN_IF_ERROR(check_int32("top_logprobs", request.output().top_logprobs()));
  SamplingParams to;
  if (from.has_temperature()) to.temperature = from.temperature();
  if (from.has_top_p()) to.top_p = from.top_p();
  to.top_k = static_cast<int32_t>(from.top_k());
  to.min_p = from.min_p();
  if (from.has_repetition_penalty()) to.repetition_penalty = from.repetition_penalty();
  to.presence_penalty = from.presence_penalty();
  to.frequency_penalty = from.frequency_penalty();
  DHS_ASSIGN_OR_RETURN(to.logit_bias, to_biases(from, rules.model));
  if (from.has_seed()) to.seed = from.seed();
  to.is_repeatable = from.has_seed();
  // Unset means the rest of the context; how much that is depends on the prompt, which comes later.
  to.max_tokens = from.has_max_tokens() ? static_cast<int32_t>(from.max_tokens())
                                        : std::numeric_limits<int32_t>::max();
  to.min_tokens = static_cast<int32_t>(from.min_tokens());
  DHS_ASSIGN_OR_RETURN(to.stop_token_ids,
                       check_token_ids(from.stop_token_ids(), "stop_token_ids", rules.model));
  to.ignore_eos = from.ignore_eos();
  to.num_top_logprobs = static_cast<int32_t>(request.output().top_logprobs());
  to.logprobs = request.output().logprobs() || to.num_top_logprobs > 0;
  DHS_RETURN_IF_ERROR(validate(to, rules.limits, rules.model.vocab_size));
  return to;
}

absl::StatusOr<StopMatcher> to_stop_matcher(const std::vector<std::string>& stops,
                                            bool include_stop, const LimitsConfig& limits) {
  if (stops.size() > static_cast<size_t>(limits.max_stop_strings)) {
    return over_limit("stop", absl::StrCat(stops.size(), " stop strings"), limits.max_stop_strings,
                      "limits.max_stop_strings", "send fewer");
  }
  for (size_t i = 0; i < stops.size(); ++i) {
    const std::string field = absl::StrCat("stop[", i, "]");
    if (stops[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": 0 bytes, at least 1 is needed; leave empty stop strings out"));
    }
    if (stops[i].size() > static_cast<size_t>(limits.max_stop_string_bytes)) {
      return over_limit(field, absl::StrCat(stops[i].size(), " bytes"),
                        limits.max_stop_string_bytes, "limits.max_stop_string", "shorten it");
    }
  }
  return StopMatcher::create(stops,
                             {.include_stop_in_output = include_stop,
                              .max_num_stops = static_cast<size_t>(limits.max_stop_strings),
                              .max_stop_bytes = static_cast<size_t>(limits.max_stop_string_bytes)});
}

absl::StatusOr<std::vector<TokenId>> to_prompt(const wire::GenerateRequest& request,
                                               const RequestRules& rules) {
  if (request.prompt_case() == wire::GenerateRequest::PROMPT_NOT_SET) {
    return absl::InvalidArgumentError("prompt: missing; set text or token_ids");
  }
  std::vector<TokenId> prompt;
  if (request.has_text()) {
    DHS_ASSIGN_OR_RETURN(prompt, tokenize_prompt(request.text(), rules));
  } else {
    DHS_ASSIGN_OR_RETURN(prompt,
                         check_token_ids(request.token_ids().ids(), "token_ids", rules.model));
  }
  if (prompt.empty()) {
    return absl::InvalidArgumentError("prompt: 0 tokens, at least 1 is needed; send some text");
  }
  const auto num_tokens = static_cast<int64_t>(prompt.size());
  if (num_tokens > rules.limits.max_prompt_tokens) {
    return over_limit("prompt", absl::StrCat(num_tokens, " tokens"), rules.limits.max_prompt_tokens,
                      "limits.max_prompt_tokens", "shorten the prompt or raise the limit");
  }
  return prompt;
}

// Makes max_tokens definite: what was asked for, or the rest of the context as far as the
// configured memory can hold it.
absl::Status fit_into_context(int64_t prompt_tokens, bool has_max_tokens, const ModelInfo& model,
                              SamplingParams& sampling) {
  const int64_t max_context = model.max_context;
  const int64_t rest = max_context - prompt_tokens;
  if (rest < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt: ", prompt_tokens, " tokens, the limit is ", max_context - 1,
                     " (a context of ", max_context, " less one generated token); shorten it"));
  }
  if (has_max_tokens && sampling.max_tokens > rest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_tokens: ", sampling.max_tokens, ", the limit is ", rest, " (a context of ",
        max_context, " less a prompt of ", prompt_tokens, "); ask for less or shorten the prompt"));
  }
  if (!has_max_tokens) {
    // At least one: a prompt that memory can never hold is for the engine to refuse.
    const int64_t rest_in_memory = std::max<int64_t>(1, model.longest_request - prompt_tokens);
    sampling.max_tokens = static_cast<int32_t>(std::min(rest, rest_in_memory));
  }
  if (sampling.min_tokens > sampling.max_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_tokens: ", sampling.min_tokens, ", the limit is ", sampling.max_tokens,
                     " (what fits into the context after the prompt); ask for less"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> check_token_ids(
    const google::protobuf::RepeatedField<uint32_t>& ids, std::string_view field,
    const ModelInfo& model) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= static_cast<uint64_t>(model.vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat(to_absl(field), "[", i, "]: ", ids[i],
                                                     ", the limit is ", model.vocab_size - 1,
                                                     " (the last token of the vocabulary)"));
    }
  }
  return std::vector<TokenId>(ids.begin(), ids.end());
}

absl::StatusOr<std::vector<TokenId>> tokenize_prompt(const wire::TextPrompt& prompt,
                                                     const RequestRules& rules) {
  const auto num_bytes = static_cast<int64_t>(prompt.text().size());
  if (num_bytes > rules.limits.max_prompt_bytes) {
    return over_limit("prompt", absl::StrCat(num_bytes, " bytes of text"),
                      rules.limits.max_prompt_bytes, "limits.max_prompt",
                      "shorten the prompt or raise the limit");
  }
  return rules.tokenizer.encode(
      prompt.text(),
      {.add_special_tokens = !prompt.has_add_special_tokens() || prompt.add_special_tokens(),
       .parse_special = !prompt.has_parse_special_tokens() || prompt.parse_special_tokens(),
       .max_text_bytes = static_cast<size_t>(rules.limits.max_prompt_bytes)});
}

absl::StatusOr<ValidRequest> validate_request(const wire::GenerateRequest& request,
                                              const RequestRules& rules) {
  DHS_RETURN_IF_ERROR(check_request_id(request.request_id()));
  DHS_RETURN_IF_ERROR(check_salt(request.prefix_cache().salt()));
  DHS_ASSIGN_OR_RETURN(SamplingParams sampling, to_sampling(request, rules));
  std::vector<std::string> stops(request.sampling().stop().begin(),
                                 request.sampling().stop().end());
  const wire::Output& output = request.output();
  DHS_ASSIGN_OR_RETURN(StopMatcher matcher,
                       to_stop_matcher(stops, output.include_stop_str_in_output(), rules.limits));
  DHS_ASSIGN_OR_RETURN(std::vector<TokenId> prompt, to_prompt(request, rules));
  DHS_RETURN_IF_ERROR(fit_into_context(static_cast<int64_t>(prompt.size()),
                                       request.sampling().has_max_tokens(), rules.model, sampling));
  return ValidRequest{
      .request_id = request.request_id(),
      .engine_request = {.prompt = std::move(prompt),
                         .sampling = std::move(sampling),
                         .priority = request.priority(),
                         .cache_salt = request.prefix_cache().salt(),
                         .bypass_prefix_cache = request.prefix_cache().bypass()},
      .stops = std::move(stops),
      .stop_matcher = std::move(matcher),
      .skip_special_tokens = !output.has_skip_special_tokens() || output.skip_special_tokens()};
}

}  // namespace dhs
