// From the wire to the engine: every limit is checked here, before anything is computed.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "dhisparse/config.h"
#include "dhisparse/engine.h"
#include "dhisparse/tokenizer.h"
#include "dhisparse/v1/generation.pb.h"

namespace dhs {

namespace wire = ::dhisparse::v1;

// What requests are checked against; all of it outlives the server.
struct RequestRules {
  const LimitsConfig& limits;
  const ModelInfo& model;
  const Tokenizer& tokenizer;
};

struct ValidRequest {
  std::string request_id;
  GenerateRequest engine_request;  // without a deadline
  std::vector<std::string> stops;
  StopMatcher stop_matcher;
  bool skip_special_tokens = true;
};

// Errors are INVALID_ARGUMENT and name the field, its value and the limit.
absl::StatusOr<ValidRequest> validate_request(const wire::GenerateRequest& request,
                                              const RequestRules& rules);

// The tokens of a text prompt, within limits.max_prompt; may be empty.
absl::StatusOr<std::vector<TokenId>> tokenize_prompt(const wire::TextPrompt& prompt,
                                                     const RequestRules& rules);

// `ids` as token ids, each in the model's vocabulary. `field` names them in errors.
absl::StatusOr<std::vector<TokenId>> check_token_ids(
    const google::protobuf::RepeatedField<uint32_t>& ids, std::string_view field,
    const ModelInfo& model);

}  // namespace dhs
