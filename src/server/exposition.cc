#include "server/exposition.h"

#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

namespace dhs {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

using Labels = std::vector<ClientMetric::Label>;

struct Sample {
  Labels labels;
  int64_t value = 0;
};

// Collects families; each carries the labels that all have.
class Families {
 public:
  explicit Families(Labels labels) : labels_(std::move(labels)) {}

  void gauge(const char* name, const char* help, double value) {
    ClientMetric metric = with_labels({});
    metric.gauge.value = value;
    add(name, help, MetricType::Gauge, {metric});
  }
  void gauges(const char* name, const char* help, const std::vector<Sample>& samples) {
    std::vector<ClientMetric> metrics;
    for (const Sample& sample : samples) {
      metrics.push_back(with_labels(sample.labels));
      metrics.back().gauge.value = static_cast<double>(sample.value);
    }
    add(name, help, MetricType::Gauge, std::move(metrics));
  }

  void counter(const char* name, const char* help, int64_t value) {
    counters(name, help, {{{}, value}});
  }
  void seconds(const char* name, const char* help, absl::Duration total) {
    ClientMetric metric = with_labels({});
    metric.counter.value = absl::ToDoubleSeconds(total);
    add(name, help, MetricType::Counter, {metric});
  }
  void counters(const char* name, const char* help, const std::vector<Sample>& samples) {
    std::vector<ClientMetric> metrics;
    for (const Sample& sample : samples) {
      metrics.push_back(with_labels(sample.labels));
      metrics.back().counter.value = static_cast<double>(sample.value);
    }
    add(name, help, MetricType::Counter, std::move(metrics));
  }

  void histogram(const char* name, const char* help, const Histogram& from) {
    ClientMetric metric = with_labels({});
    uint64_t total = 0;
    for (size_t i = 0; i < from.num_edges; ++i) {
      total += static_cast<uint64_t>(from.counts[i]);
      metric.histogram.bucket.push_back({total, from.edges[i]});
    }
    metric.histogram.sample_count = static_cast<uint64_t>(from.count());
    metric.histogram.sample_sum = from.sum;
    add(name, help, MetricType::Histogram, {metric});
  }

  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  ClientMetric with_labels(const Labels& more) const {
    ClientMetric metric;
    metric.label = labels_;
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    return metric;
  }
  void add(const char* name, const char* help, MetricType type, std::vector<ClientMetric> metrics) {
    families_.push_back({absl::StrCat("dhisparse_", name), help, type, std::move(metrics)});
  }

  const Labels labels_;
  std::vector<MetricFamily> families_;
};

int64_t num_finished(const EngineState& state, FinishReason reason) {
  return state.request_figures.finished[static_cast<size_t>(reason)];
}

void add_requests(const EngineState& state, Families& all) {
  all.gauge("requests_running", "Requests on the device.",
            static_cast<double>(state.running_requests));
  all.gauge("requests_waiting", "Requests that have not begun.",
            static_cast<double>(state.queued_requests));
  all.gauge("requests_parked", "Requests that began and are off the device now.",
            static_cast<double>(state.parked_requests));
  all.gauge("requests_running_limit", "scheduler.max_running.",
            static_cast<double>(state.max_running));
  all.gauge("waiting_prompt_tokens", "Prompt tokens of the waiting requests.",
            static_cast<double>(state.queued_tokens));
  all.counters("requests_finished_total", "Requests that ended, by reason.",
               {{{{"reason", "stop"}}, num_finished(state, FinishReason::kStop)},
                {{{"reason", "length"}}, num_finished(state, FinishReason::kLength)},
                {{{"reason", "cancelled"}}, num_finished(state, FinishReason::kCancelled)},
                {{{"reason", "deadline"}}, num_finished(state, FinishReason::kDeadline)},
                {{{"reason", "error"}}, num_finished(state, FinishReason::kError)}});
  all.counters("requests_refused_total", "Requests that the engine did not take, by reason.",
               {{{{"reason", "queue_full"}}, state.refused_queue_full},
                {{{"reason", "unavailable"}}, state.refused_unavailable}});
  all.counter("preemptions_total", "Times a request was parked to make place.", state.preemptions);
  all.counter("parks_total", "Times a request was parked, for whatever reason.", state.parks);
  all.counter("resumes_total", "Times a parked request came back.", state.resumes);
}

void add_tokens(const EngineState& state, Families& all) {
  all.counter("prompt_tokens_total", "Prompt tokens computed.", state.prompt_tokens);
  all.counter("generation_tokens_total", "Tokens generated.", state.generated_tokens);
  all.counter("prefix_cache_queried_tokens_total", "Tokens looked up in the prefix cache.",
              state.prefix.looked_up);
  all.counters(
      "prefix_cache_hit_tokens_total",
      "Tokens found in the prefix cache, by the tier that had their index keys.",
      {{{{"tier", "device"}}, state.prefix.on_device}, {{{"tier", "host"}}, state.prefix.on_host}});
}

void add_drafts(const EngineState& state, Families& all) {
  all.gauge("draft_cap", "Drafts that a request verifies in a step at present, at most.",
            static_cast<double>(state.draft_cap));
  all.counter("draft_draws_total", "Draws that verified at least one draft.", state.drafts.draws);
  all.counter("drafts_verified_total", "Drafts that steps verified.", state.drafts.verified);
  all.counter("drafts_accepted_total", "Drafts that were accepted.", state.drafts.accepted);
  std::vector<Sample> verified, accepted;
  for (size_t i = 0; i < state.drafts.verified_at.size(); ++i) {
    const std::string place = std::to_string(i);
    verified.push_back({{{"place", place}}, state.drafts.verified_at[i]});
    accepted.push_back({{{"place", place}}, state.drafts.accepted_at[i]});
  }
  all.counters("drafts_verified_at_total", "Drafts that steps verified, by place in their block.",
               verified);
  all.counters("drafts_accepted_at_total", "Drafts that were accepted, by place in their block.",
               accepted);
}

void add_figures(const EngineState& state, Families& all) {
  const RequestFigures& requests = state.request_figures;
  all.histogram("time_to_first_token_seconds", "From a request's arrival to its first token.",
                requests.first_token);
  all.histogram("inter_token_latency_seconds", "Of each token after the first.",
                requests.inter_token);
  all.histogram("request_time_per_output_token_seconds",
                "Of each request: (last - first token) / (tokens - 1).", requests.per_output_token);
  all.histogram("e2e_request_latency_seconds", "From a request's arrival to its end.",
                requests.whole);
  all.histogram("request_queue_time_seconds", "From a request's arrival to its first step.",
                requests.queue);
  all.histogram("request_prompt_tokens", "Prompt tokens of each ended request.",
                requests.prompt_tokens);
  all.histogram("request_generation_tokens", "Generated tokens of each ended request.",
                requests.output_tokens);
  all.counter("steps_total", "Steps begun.", state.steps);
  all.histogram("step_seconds", "What each step took.", state.step_figures.seconds);
  all.histogram("step_tokens", "Query rows of each step.", state.step_figures.tokens);
}

void add_tiers(const EngineState& state, Families& all) {
  all.gauge("device_pool_bytes", "Device memory in chunks.",
            static_cast<double>(state.device_pool_bytes));
  all.gauge("device_chunk_bytes", "The unit that moves between owners.",
            static_cast<double>(state.chunk_bytes));
  const int64_t chunk_bytes = std::max<int64_t>(1, state.chunk_bytes);
  all.gauges("device_chunks", "Chunks of device memory, by owner.",
             {{{{"owner", "index_keys"}}, state.device_index_bytes / chunk_bytes},
              {{{"owner", "draft_pages"}}, state.device_draft_bytes / chunk_bytes},
              {{{"owner", "row_caches"}}, state.device_row_cache_bytes / chunk_bytes},
              {{{"owner", "nobody"}}, state.chunks_free}});
  all.counter("index_chunks_grown_total", "Chunks that joined the index keys.",
              state.index_moves.grown);
  all.counter("index_chunks_released_total", "Chunks that left the index keys.",
              state.index_moves.released);
  all.counter("draft_chunks_grown_total", "Chunks that joined the draft pages.",
              state.draft_moves.grown);
  all.counter("draft_chunks_released_total", "Chunks that left the draft pages.",
              state.draft_moves.released);
  all.gauge("host_pool_bytes", "Host memory in host blocks.",
            static_cast<double>(state.host_pool_bytes));
  all.gauges("host_used_bytes", "Host memory in use, by what holds it.",
             {{{{"holder", "requests"}}, state.host_used_bytes},
              {{{"holder", "prefix_cache"}}, state.host_cached_bytes}});
}

Labels labels_of(size_t index, const GroupState& group) {
  return {
      {"group", absl::StrCat(index)},
      {"layers", absl::StrCat(group.first_layer, "-", group.first_layer + group.num_layers - 1)}};
}

std::vector<Sample> of_groups(const EngineState& state, int64_t GroupState::*field) {
  std::vector<Sample> samples;
  for (size_t g = 0; g < state.groups.size(); ++g) {
    samples.push_back({labels_of(g, state.groups[g]), state.groups[g].*field});
  }
  return samples;
}

void add_row_caches(const EngineState& state, Families& all) {
  std::vector<Sample> chunks;
  for (size_t g = 0; g < state.groups.size(); ++g) {
    const GroupState& group = state.groups[g];
    const int64_t required = std::min(group.chunks, group.chunks_required);
    for (const auto& [kind, count] : {std::pair<const char*, int64_t>("required", required),
                                      {"optional", group.chunks - required}}) {
      Labels labels = labels_of(g, group);
      labels.push_back({"residency", kind});
      chunks.push_back({std::move(labels), count});
    }
  }
  all.gauges("row_cache_chunks", "Chunks of each row cache: required by requests, or optional.",
             chunks);
  all.gauges("row_cache_capacity_rows", "Slots of each row cache.",
             of_groups(state, &GroupState::capacity_rows));
  all.gauges("row_cache_resident_rows", "Slots in use.",
             of_groups(state, &GroupState::resident_rows));
  all.counters("row_cache_chunks_grown_total", "Chunks that joined a row cache.",
               of_groups(state, &GroupState::chunks_grown));
  all.counters("row_cache_chunks_released_total", "Chunks that left a row cache.",
               of_groups(state, &GroupState::chunks_released));
  all.counters("rows_selected_total", "(query row, selected row) pairs.",
               of_groups(state, &GroupState::rows_selected));
  all.counters("rows_hit_total", "Distinct rows of a pass that were resident.",
               of_groups(state, &GroupState::rows_hit));
  all.counters("rows_missed_total", "Distinct rows of a pass that were fetched from the host.",
               of_groups(state, &GroupState::rows_missed));
  all.counters("host_fetched_bytes_total", "Bytes of those fetches.",
               of_groups(state, &GroupState::fetched_bytes));
  all.counters("rows_refilled_total", "Rows fetched again before they were wanted; no misses.",
               of_groups(state, &GroupState::rows_refilled));
  all.counters("refilled_bytes_total", "Bytes of those fetches.",
               of_groups(state, &GroupState::refilled_bytes));
  all.seconds("emulated_link_seconds_total",
              "What steps waited for the emulated link (device.emulate_link); 0 on a real one.",
              state.emulated_link_time);
  all.counters("rows_evicted_total", "Rows that made room for others.",
               of_groups(state, &GroupState::rows_evicted));
  all.counters("rows_released_total", "Rows that went with released chunks.",
               of_groups(state, &GroupState::rows_released));
}

void add_engine(const EngineState& state, Families& all) {
  all.gauges("config_info", "What the engine runs with; always 1.",
             {{{{"device", state.device},
                {"residency_mode", state.residency_mode},
                {"chunk_bytes", absl::StrCat(state.chunk_bytes)},
                {"host_block_tokens", absl::StrCat(kHostBlockTokens)},
                {"max_batched_tokens", absl::StrCat(state.max_batched_tokens)},
                {"link_emulated", state.link_emulated ? "true" : "false"}},
               1}});
  all.gauge("engine_failed", "1: no step can run any more; restart it.",
            state.failure.empty() ? 0 : 1);
  add_requests(state, all);
  add_tokens(state, all);
  add_drafts(state, all);
  add_figures(state, all);
  add_tiers(state, all);
  add_row_caches(state, all);
}

void add_reloads(const ReloadCounts& reloads, Families& all) {
  all.counters("config_reloads_total", "Reloads of the configuration, by result.",
               {{{{"result", "ok"}}, reloads.succeeded}, {{{"result", "failed"}}, reloads.failed}});
  all.gauge("config_last_reload_successful", "1: what was last asked for is in force.",
            reloads.is_last_successful ? 1 : 0);
  all.gauge("config_last_reload_success_timestamp_seconds",
            "When the configuration in force was loaded.",
            static_cast<double>(absl::ToUnixMillis(reloads.last_success)) / 1e3);
}

}  // namespace

std::string exposition_text(const Exposition& exposition) {
  Labels labels;
  if (exposition.engine.has_value()) {
    labels.push_back({"model_name", exposition.engine->model_name});
  }
  Families all(std::move(labels));
  all.gauges("build_info", "The program; always 1.", {{{{"version", exposition.version}}, 1}});
  all.gauge("ready", "1: requests are served.", exposition.is_ready ? 1 : 0);
  if (exposition.reloads.has_value()) add_reloads(*exposition.reloads, all);
  if (exposition.engine.has_value()) add_engine(*exposition.engine, all);
  return all.text();
}

}  // namespace dhs
