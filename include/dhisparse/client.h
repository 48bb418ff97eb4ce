// client: the other end of dhisparse.v1, as plain data. For the command line tool, benches and
// tests; gRPC and protobuf stay behind this header.
//
// Calls block the caller; any number of threads may share one client. Errors carry the server's
// status code and message as they are.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/config_reloader.h"
#include "dhisparse/engine.h"

namespace dhs {

// What is absent takes the server's default (proto/dhisparse/v1/generation.proto).
struct ClientRequest {
  std::string request_id;
  std::variant<std::string, std::vector<uint32_t>> prompt;  // text, or token ids
  std::optional<bool> add_special_tokens;                   // text prompts only
  std::optional<bool> parse_special_tokens;                 // text prompts only
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::vector<std::pair<uint32_t, float>> logit_bias;  // token and bias
  std::optional<uint64_t> seed;
  std::optional<uint32_t> max_tokens;
  std::optional<uint32_t> min_tokens;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  std::optional<bool> ignore_eos;
  int32_t priority = 0;
  std::string cache_salt;
  bool bypass_prefix_cache = false;
  std::optional<bool> include_stop_str_in_output;
  std::optional<bool> skip_special_tokens;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  absl::Duration timeout = absl::InfiniteDuration();
};

struct ClientOutput {
  std::string request_id;
  std::string text;
  std::vector<TokenOutput> tokens;            // logprob and top only when asked for
  FinishReason reason = FinishReason::kStop;  // kStop or kLength; the others are error statuses
  std::optional<std::string> stop_string;
  std::optional<TokenId> stop_token;
  int64_t accepted_prompt_tokens = 0;  // known before the first token
  Usage usage;
  std::optional<double> time_to_first_token_s;    // as the server measured it
  std::optional<double> time_per_output_token_s;  // absent for fewer than two tokens
};

struct ServerState {
  std::string version;
  bool draining = false;
  ModelInfo model;
  EngineState engine;
  std::optional<ReloadCounts> reloads;  // absent where there is nothing to reload
};

class Client {
 public:
  virtual ~Client() = default;

  // Called for every piece of text that arrives; false cancels the call.
  using OnText = std::function<bool(const std::string& text)>;

  // CANCELLED when `on_text` said so. `on_text` may be empty.
  virtual absl::StatusOr<ClientOutput> generate(const ClientRequest& request,
                                                const OnText& on_text) = 0;

  // `timeout` bounds each of the calls below.
  virtual absl::StatusOr<std::vector<TokenId>> tokenize(const std::string& text,
                                                        absl::Duration timeout) = 0;
  virtual absl::StatusOr<std::string> detokenize(const std::vector<uint32_t>& token_ids,
                                                 absl::Duration timeout) = 0;
  virtual absl::StatusOr<ServerState> state(absl::Duration timeout) = 0;
  // Has the server read its configuration again; what is in force now that was not before.
  virtual absl::StatusOr<std::vector<ConfigChange>> reload(absl::Duration timeout) = 0;
};

// `target` is "host:port". Connects with the first call, which fails as UNAVAILABLE when nobody
// listens there. Ignores proxy settings of the environment.
std::unique_ptr<Client> make_client(const std::string& target);

}  // namespace dhs
