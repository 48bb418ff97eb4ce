#include "app/client_json.h"

#include <nlohmann/json.hpp>

namespace dhs {
namespace {

using Json = nlohmann::ordered_json;

// Bytes that are not UTF-8 become U+FFFD; non-finite numbers become null.
std::string print(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json logprobs_of(const std::vector<TokenOutput>& tokens) {
  Json all = Json::array();
  for (const TokenOutput& token : tokens) {
    Json top = Json::array();
    for (const TokenLogprob& alternative : token.top) {
      top.push_back({{"token_id", alternative.token}, {"logprob", alternative.logprob}});
    }
    all.push_back({{"token_id", token.token}, {"logprob", token.logprob}, {"top", std::move(top)}});
  }
  return all;
}

Json group_of(const GroupState& group) {
  return {{"first_layer", group.first_layer},     {"num_layers", group.num_layers},
          {"record_bytes", group.record_bytes},   {"capacity_rows", group.capacity_rows},
          {"resident_rows", group.resident_rows}, {"chunks", group.chunks},
          {"rows_selected", group.rows_selected}, {"rows_hit", group.rows_hit},
          {"rows_missed", group.rows_missed},     {"fetched_bytes", group.fetched_bytes},
          {"rows_evicted", group.rows_evicted},   {"rows_released", group.rows_released}};
}

}  // namespace

std::string generate_json(const ClientOutput& output, bool logprobs) {
  Json ids = Json::array();
  for (const TokenOutput& token : output.tokens) ids.push_back(token.token);
  Json json = {
      {"request_id", output.request_id},
      {"text", output.text},
      {"token_ids", std::move(ids)},
      {"finish_reason", output.reason == FinishReason::kLength ? "length" : "stop"},
      {"stop_string", or_null(output.stop_string)},
      {"stop_token_id", or_null(output.stop_token)},
      {"prompt_tokens", output.usage.prompt_tokens},
      {"completion_tokens", output.usage.completion_tokens},
      {"cached_prompt_tokens", output.usage.cached_prompt_tokens},
      {"rows_selected", output.usage.rows_selected},
      {"rows_fetched", output.usage.rows_fetched},
      {"times_parked", output.usage.times_parked},
      {"time_to_first_token_s", or_null(output.time_to_first_token_s)},
      {"time_per_output_token_s", or_null(output.time_per_output_token_s)},
  };
  if (logprobs) json["logprobs"] = logprobs_of(output.tokens);
  return print(json);
}

std::string state_json(const ServerState& state) {
  const EngineState& engine = state.engine;
  int64_t rows_selected = 0;
  int64_t rows_missed = 0;
  Json groups = Json::array();
  for (const GroupState& group : engine.groups) {
    rows_selected += group.rows_selected;
    rows_missed += group.rows_missed;
    groups.push_back(group_of(group));
  }
  return print({
      {"version", state.version},
      {"draining", state.draining},
      {"model",
       {{"name", state.model.name},
        {"max_context", state.model.max_context},
        {"vocab_size", state.model.vocab_size},
        {"eos_token_ids", state.model.eos_token_ids}}},
      {"device", engine.device},
      {"residency_mode", engine.residency_mode},
      {"link_emulated", engine.link_emulated},
      {"steps", engine.steps},
      {"prompt_tokens", engine.prompt_tokens},
      {"generated_tokens", engine.generated_tokens},
      {"cached_prompt_tokens", engine.cached_prompt_tokens},
      {"requests",
       {{"running", engine.running_requests},
        {"queued", engine.queued_requests},
        {"queued_tokens", engine.queued_tokens},
        {"peak_running", engine.peak_running_requests},
        {"finished", engine.finished_requests},
        {"parked", engine.parked_requests},
        {"preemptions", engine.preemptions}}},
      {"device_tier",
       {{"pool_bytes", engine.device_pool_bytes},
        {"index_bytes", engine.device_index_bytes},
        {"row_cache_bytes", engine.device_row_cache_bytes},
        {"chunk_bytes", engine.chunk_bytes},
        {"chunks_free", engine.chunks_free}}},
      {"host_tier",
       {{"pool_bytes", engine.host_pool_bytes},
        {"used_bytes", engine.host_used_bytes},
        {"cached_bytes", engine.host_cached_bytes}}},
      {"rows_selected", rows_selected},
      {"rows_missed", rows_missed},
      {"host_fetch_fraction",
       rows_selected > 0 ? Json(engine.host_fetch_fraction()) : Json(nullptr)},
      {"groups", std::move(groups)},
  });
}

std::string tokenize_json(const std::vector<TokenId>& token_ids) {
  return print({{"token_ids", token_ids}});
}

std::string detokenize_json(const std::string& text) { return print({{"text", text}}); }

}  // namespace dhs
