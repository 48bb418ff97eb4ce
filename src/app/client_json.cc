#include "app/client_json.h"

#include <absl/time/time.h>

#include <algorithm>
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
  return {{"first_layer", group.first_layer},
          {"num_layers", group.num_layers},
          {"record_bytes", group.record_bytes},
          {"capacity_rows", group.capacity_rows},
          {"resident_rows", group.resident_rows},
          {"chunks", group.chunks},
          {"chunks_required", group.chunks_required},
          {"chunks_grown", group.chunks_grown},
          {"chunks_released", group.chunks_released},
          {"rows_selected", group.rows_selected},
          {"rows_hit", group.rows_hit},
          {"rows_missed", group.rows_missed},
          {"fetched_bytes", group.fetched_bytes},
          {"rows_refilled", group.rows_refilled},
          {"refilled_bytes", group.refilled_bytes},
          {"rows_evicted", group.rows_evicted},
          {"rows_released", group.rows_released}};
}

Json histogram_of(const Histogram& from) {
  return {{"count", from.count()},
          {"sum", from.sum},
          {"p50", or_null(from.quantile(0.5))},
          {"p95", or_null(from.quantile(0.95))},
          {"p99", or_null(from.quantile(0.99))}};
}

Json figures_of(const EngineState& engine) {
  const RequestFigures& requests = engine.request_figures;
  return {{"first_token_s", histogram_of(requests.first_token)},
          {"inter_token_s", histogram_of(requests.inter_token)},
          {"per_output_token_s", histogram_of(requests.per_output_token)},
          {"whole_s", histogram_of(requests.whole)},
          {"queue_s", histogram_of(requests.queue)},
          {"prompt_tokens", histogram_of(requests.prompt_tokens)},
          {"output_tokens", histogram_of(requests.output_tokens)},
          {"step_s", histogram_of(engine.step_figures.seconds)},
          {"step_tokens", histogram_of(engine.step_figures.tokens)}};
}

Json requests_of(const EngineState& engine) {
  const auto finished = [&](FinishReason reason) {
    return engine.request_figures.finished[static_cast<size_t>(reason)];
  };
  return {
      {"running", engine.running_requests},
      {"max_running", engine.max_running},
      {"queued", engine.queued_requests},
      {"queued_tokens", engine.queued_tokens},
      {"peak_running", engine.peak_running_requests},
      {"finished", engine.finished_requests},
      {"finished_by_reason",
       {{"stop", finished(FinishReason::kStop)},
        {"length", finished(FinishReason::kLength)},
        {"cancelled", finished(FinishReason::kCancelled)},
        {"deadline", finished(FinishReason::kDeadline)},
        {"error", finished(FinishReason::kError)}}},
      {"refused",
       {{"queue_full", engine.refused_queue_full}, {"unavailable", engine.refused_unavailable}}},
      {"parked", engine.parked_requests},
      {"preemptions", engine.preemptions},
      {"parks", engine.parks},
      {"resumes", engine.resumes}};
}

Json reloads_of(const std::optional<ReloadCounts>& reloads) {
  if (!reloads) return nullptr;
  return {{"succeeded", reloads->succeeded},
          {"failed", reloads->failed},
          {"is_last_successful", reloads->is_last_successful},
          {"last_success", absl::FormatTime(reloads->last_success, absl::UTCTimeZone())}};
}

// JSON has no blanks in names: "host_pool".
std::string key_of(CapacityLimit limit) {
  std::string key = name_of(limit);
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
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
      {"drafts_verified", output.usage.drafts_verified},
      {"drafts_accepted", output.usage.drafts_accepted},
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
      {"emulated_link_s", absl::ToDoubleSeconds(engine.emulated_link_time)},
      {"steps", engine.steps},
      {"prompt_tokens", engine.prompt_tokens},
      {"generated_tokens", engine.generated_tokens},
      {"cached_prompt_tokens", engine.cached_prompt_tokens},
      {"failure", engine.failure},
      {"requests", requests_of(engine)},
      {"prefix",
       {{"looked_up_tokens", engine.prefix.looked_up},
        {"device_tokens", engine.prefix.on_device},
        {"host_tokens", engine.prefix.on_host}}},
      {"drafts",
       {{"kind", engine.draft_kind},
        {"cap", engine.draft_cap},
        {"draws", engine.drafts.draws},
        {"verified", engine.drafts.verified},
        {"accepted", engine.drafts.accepted},
        {"verified_at", engine.drafts.verified_at},
        {"accepted_at", engine.drafts.accepted_at},
        {"mean_accepted_length", engine.drafts.mean_accepted_length()}}},
      {"figures", figures_of(engine)},
      {"reloads", reloads_of(state.reloads)},
      {"device_tier",
       {{"pool_bytes", engine.device_pool_bytes},
        {"index_bytes", engine.device_index_bytes},
        {"row_cache_bytes", engine.device_row_cache_bytes},
        {"chunk_bytes", engine.chunk_bytes},
        {"chunks_free", engine.chunks_free},
        {"index_chunks_grown", engine.index_moves.grown},
        {"index_chunks_released", engine.index_moves.released},
        {"draft_bytes", engine.device_draft_bytes},
        {"draft_chunks_grown", engine.draft_moves.grown},
        {"draft_chunks_released", engine.draft_moves.released}}},
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

std::string reload_json(const std::vector<ConfigChange>& changes) {
  Json all = Json::array();
  for (const ConfigChange& change : changes) {
    all.push_back({{"key", change.key}, {"before", change.before}, {"after", change.after}});
  }
  return print({{"changes", std::move(all)}});
}

std::string plan_json(const CapacityPlan& plan) {
  Json modes = Json::object();
  for (const ModeCapacity& mode : plan.modes) {
    Json contexts = Json::array();
    for (const ContextCapacity& capacity : mode.contexts) {
      contexts.push_back({{"tokens", capacity.context},
                          {"max_requests", capacity.max_requests},
                          {"limit", key_of(capacity.limit)}});
    }
    modes[name_of(mode.mode)] = std::move(contexts);
  }
  return print({{"model",
                 {{"name", plan.model_name},
                  {"family", plan.family},
                  {"max_context", plan.max_context},
                  {"index_groups", plan.num_groups},
                  {"top_k", plan.top_k}}},
                {"ranks", plan.num_ranks},
                {"device_pool_bytes", plan.device_pool_bytes},
                {"chunk_bytes", plan.chunk_bytes},
                {"host_pool_bytes", plan.host_pool_bytes},
                {"host_block_bytes", plan.host_block_bytes},
                {"fixed_rows_per_request", plan.fixed_rows_per_request},
                {"max_running", plan.max_running},
                {"modes", std::move(modes)}});
}

std::string tokenize_json(const std::vector<TokenId>& token_ids) {
  return print({{"token_ids", token_ids}});
}

std::string detokenize_json(const std::string& text) { return print({{"text", text}}); }

}  // namespace dhs
