#include "app/state_table.h"

#include <absl/strings/str_format.h>

namespace dhs {
namespace {

// "12.5 MiB"; whole bytes below 1 KiB.
std::string bytes(int64_t num_bytes) {
  if (num_bytes < 1024) return absl::StrFormat("%d B", num_bytes);
  double value = static_cast<double>(num_bytes);
  std::string_view unit;
  for (std::string_view next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024.0) break;
    value /= 1024.0;
    unit = next;
  }
  return absl::StrFormat("%.1f %s", value, to_absl(unit));
}

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string summary(const ServerState& state) {
  const EngineState& engine = state.engine;
  std::string text;
  absl::StrAppendFormat(&text, "model     %s, context %d tokens, vocabulary %d\n", state.model.name,
                        state.model.max_context, state.model.vocab_size);
  absl::StrAppendFormat(&text, "engine    %s, residency %s%s%s, version %s\n", engine.device,
                        engine.residency_mode, engine.link_emulated ? ", link emulated" : "",
                        state.draining ? ", DRAINING" : "", state.version);
  absl::StrAppendFormat(&text,
                        "requests  running %d (peak %d), parked %d, queued %d (%d tokens), "
                        "finished %d, preemptions %d\n",
                        engine.running_requests, engine.peak_running_requests,
                        engine.parked_requests, engine.queued_requests, engine.queued_tokens,
                        engine.finished_requests, engine.preemptions);
  absl::StrAppendFormat(
      &text, "tokens    prompt %d, from the prefix cache %d, generated %d, in %d steps\n",
      engine.prompt_tokens, engine.cached_prompt_tokens, engine.generated_tokens, engine.steps);
  absl::StrAppendFormat(&text,
                        "device    %s: row caches %s, index keys %s, free %s (chunks of %s)\n",
                        bytes(engine.device_pool_bytes), bytes(engine.device_row_cache_bytes),
                        bytes(engine.device_index_bytes),
                        bytes(engine.chunks_free * engine.chunk_bytes), bytes(engine.chunk_bytes));
  absl::StrAppendFormat(&text, "host      %s: used %s (%s), cached prefixes %s\n",
                        bytes(engine.host_pool_bytes), bytes(engine.host_used_bytes),
                        percent(engine.host_used_bytes, engine.host_pool_bytes),
                        bytes(engine.host_cached_bytes));
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
    absl::StrAppendFormat(&groups, "%-9s %8d %6d %9d %9d %12d %10d %8s %10s %9d %9d\n", layers,
                          group.record_bytes, group.chunks, group.capacity_rows,
                          group.resident_rows, group.rows_selected, group.rows_missed,
                          percent(group.rows_missed, group.rows_needed()),
                          bytes(group.fetched_bytes), group.rows_evicted, group.rows_released);
  }
  absl::StrAppendFormat(
      &text, "rows      selected %d, fetched from the host %d (host-fetch fraction %s), %s\n\n",
      total.rows_selected, total.rows_missed, percent(total.rows_missed, total.rows_needed()),
      bytes(total.fetched_bytes));
  absl::StrAppendFormat(&text, "%-9s %8s %6s %9s %9s %12s %10s %8s %10s %9s %9s\n", "layers",
                        "record B", "chunks", "capacity", "resident", "selected", "missed", "miss",
                        "fetched", "evicted", "released");
  return text + groups;
}

}  // namespace dhs
