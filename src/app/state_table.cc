#include "app/state_table.h"

#include <absl/strings/str_format.h>

#include "app/size_text.h"

namespace dhs {
namespace {

// "first token 12.0 / 31.5 ms": half of all, and 95 of 100, took no longer.
std::string latency(const char* what, const Histogram& seconds) {
  const auto ms = [&](double share) {
    const std::optional<double> value = seconds.quantile(share);
    return value ? absl::StrFormat("%.1f", *value * 1e3) : std::string("-");
  };
  return absl::StrFormat("%s %s / %s ms", what, ms(0.5), ms(0.95));
}

std::string latencies(const EngineState& engine) {
  const RequestFigures& requests = engine.request_figures;
  return absl::StrCat("p50, p95  ", latency("first token", requests.first_token), ", ",
                      latency("between tokens", requests.inter_token), ", ",
                      latency("queue", requests.queue), ", ",
                      latency("step", engine.step_figures.seconds), "\n");
}

std::string finished_by_reason(const EngineState& engine) {
  const auto finished = [&](FinishReason reason) {
    return engine.request_figures.finished[static_cast<size_t>(reason)];
  };
  return absl::StrFormat(
      "finished  %d: stop %d, length %d, cancelled %d, deadline %d, error %d; refused: queue full "
      "%d, unavailable %d\n",
      engine.finished_requests, finished(FinishReason::kStop), finished(FinishReason::kLength),
      finished(FinishReason::kCancelled), finished(FinishReason::kDeadline),
      finished(FinishReason::kError), engine.refused_queue_full, engine.refused_unavailable);
}

std::string reloads(const ReloadCounts& counts) {
  return absl::StrFormat("reloads   %d, failed %d%s\n", counts.succeeded, counts.failed,
                         counts.is_last_successful ? "" : "; THE LATEST FAILED, see the log");
}

// "drafts    dflash2: up to 7 a step; verified 900, accepted 512 (56.9%), accepted length 3.21".
std::string drafts(const EngineState& engine) {
  if (engine.draft_kind.empty() || engine.draft_kind == "none") return {};
  const DraftCounts& counts = engine.drafts;
  return absl::StrFormat(
      "drafts    %s: up to %d a step; verified %d, accepted %d (%s), mean accepted length %.2f\n",
      engine.draft_kind, engine.draft_cap, counts.verified, counts.accepted,
      percent_text(counts.accepted, counts.verified), counts.mean_accepted_length());
}

std::string draft_pages(const EngineState& engine) {
  if (engine.draft_moves.grown == 0) return {};
  return absl::StrCat(", draft pages ", size_text(engine.device_draft_bytes));
}

std::string summary(const ServerState& state) {
  const EngineState& engine = state.engine;
  std::string text;
  absl::StrAppendFormat(&text, "model     %s, context %d tokens, vocabulary %d\n", state.model.name,
                        state.model.max_context, state.model.vocab_size);
  absl::StrAppendFormat(&text, "engine    %s, residency %s%s%s, version %s\n", engine.device,
                        engine.residency_mode, engine.link_emulated ? ", link emulated" : "",
                        state.draining ? ", DRAINING" : "", state.version);
  if (!engine.failure.empty()) absl::StrAppend(&text, "FAILED    ", engine.failure, "\n");
  absl::StrAppendFormat(&text,
                        "requests  running %d of %d (peak %d), parked %d, queued %d (%d tokens); "
                        "parks %d, resumes %d, preemptions %d\n",
                        engine.running_requests, engine.max_running, engine.peak_running_requests,
                        engine.parked_requests, engine.queued_requests, engine.queued_tokens,
                        engine.parks, engine.resumes, engine.preemptions);
  text += finished_by_reason(engine);
  absl::StrAppendFormat(
      &text, "tokens    prompt %d, from the prefix cache %d, generated %d, in %d steps\n",
      engine.prompt_tokens, engine.cached_prompt_tokens, engine.generated_tokens, engine.steps);
  absl::StrAppendFormat(&text,
                        "prefixes  looked up %d tokens, found %d on the device, %d on the host\n",
                        engine.prefix.looked_up, engine.prefix.on_device, engine.prefix.on_host);
  text += drafts(engine);
  text += latencies(engine);
  absl::StrAppendFormat(
      &text, "device    %s: row caches %s, index keys %s%s, free %s (chunks of %s)\n",
      size_text(engine.device_pool_bytes), size_text(engine.device_row_cache_bytes),
      size_text(engine.device_index_bytes), draft_pages(engine),
      size_text(engine.chunks_free * engine.chunk_bytes), size_text(engine.chunk_bytes));
  absl::StrAppendFormat(&text, "host      %s: used %s (%s), cached prefixes %s\n",
                        size_text(engine.host_pool_bytes), size_text(engine.host_used_bytes),
                        percent_text(engine.host_used_bytes, engine.host_pool_bytes),
                        size_text(engine.host_cached_bytes));
  if (state.reloads) text += reloads(*state.reloads);
  return text;
}

}  // namespace

std::string state_table(const ServerState& state) {
  std::string text = summary(state);
  GroupState total;
  std::string groups;
  for (const GroupState& group : state.engine.groups) {
    total.rows_selected += group.rows_selected;
    total.rows_hit += group.rows_hit;
    total.rows_missed += group.rows_missed;
    total.fetched_bytes += group.fetched_bytes;
    const std::string layers =
        absl::StrCat(group.first_layer, "-", group.first_layer + group.num_layers - 1);
    absl::StrAppendFormat(&groups, "%-9s %8d %6d %8d %9d %9d %12d %10d %8s %10s %9d %9d\n", layers,
                          group.record_bytes, group.chunks, group.chunks_required,
                          group.capacity_rows, group.resident_rows, group.rows_selected,
                          group.rows_missed, percent_text(group.rows_missed, group.rows_needed()),
                          size_text(group.fetched_bytes), group.rows_evicted, group.rows_released);
  }
  absl::StrAppendFormat(
      &text, "rows      selected %d, fetched from the host %d (host-fetch fraction %s), %s\n\n",
      total.rows_selected, total.rows_missed, percent_text(total.rows_missed, total.rows_needed()),
      size_text(total.fetched_bytes));
  absl::StrAppendFormat(&text, "%-9s %8s %6s %8s %9s %9s %12s %10s %8s %10s %9s %9s\n", "layers",
                        "record B", "chunks", "required", "capacity", "resident", "selected",
                        "missed", "miss", "fetched", "evicted", "released");
  return text + groups;
}

}  // namespace dhs
