#include <absl/strings/str_format.h>

#include "dhisparse/sim.h"

namespace dhs {
namespace {

constexpr double kMs = 1e3;
constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string head(const SimReport& report) {
  const SimConfig& config = report.config;
  const std::string draft =
      config.draft.num_tokens == 0
          ? "no draft"
          : absl::StrFormat("draft %s, %d tokens, acceptance %g", config.draft.name,
                            config.draft.num_tokens, config.draft.acceptance);
  return absl::StrFormat(
      "simulated  %s on %d x %s, context %d, concurrency %d\n"
      "           %s, seed %d, %d of %d index groups sampled, %d steps after %d\n",
      config.model.name, config.deployment.num_gpus, config.hardware.name, config.workload.context,
      config.workload.concurrency, draft, config.run.seed, config.run.sampled_groups,
      config.model.index_groups, report.steps, config.run.warmup_steps);
}

std::string parts(const StepTimes& times) {
  return absl::StrFormat(
      "step       gemm %.2f, index %.2f, top_k %.2f, attention %.2f, exchange %.2f, fetch %.2f, "
      "draft %.2f, fixed %.2f ms\n",
      times.gemm * kMs, times.index * kMs, times.top_k * kMs, times.attention * kMs,
      times.exchange * kMs, times.fetch * kMs, times.draft * kMs, times.fixed * kMs);
}

}  // namespace

std::string report_text(const SimReport& report) {
  std::string text = head(report);
  absl::StrAppendFormat(&text,
                        "output     %.1f tokens/s per GPU, %.2f tokens per step and request\n",
                        report.output_tokens_per_s_per_gpu, report.acceptance_length);
  absl::StrAppendFormat(&text, "TPOT       mean %.2f, p50 %.2f, p99 %.2f ms; step %.2f ms\n",
                        report.tpot_mean * kMs, report.tpot_p50 * kMs, report.tpot_p99 * kMs,
                        report.step_time * kMs);
  text += parts(report.times);
  absl::StrAppendFormat(
      &text,
      "rows       host-fetch fraction %.2f %% (%.2f %% of all selected), %.0f fetched a step\n",
      report.rows.fetch_fraction() * 100, report.rows.missed_per_selected() * 100,
      report.fetched_rows_per_step);
  absl::StrAppendFormat(
      &text, "memory     pool %.1f GiB, %.0f rows per request and group, %d of %d offered run\n",
      static_cast<double>(report.memory.pool_bytes) / kGiB, report.rows_per_request,
      report.max_running, report.offered_on_rank);
  for (const SimChangeReport& change : report.changes) {
    absl::StrAppendFormat(
        &text, "step %-6d concurrency %d: %d admitted within %d steps, %d chunks released for it\n",
        change.step, change.concurrency, change.admitted, change.steps_to_admit,
        change.chunks_released);
  }
  return text;
}

}  // namespace dhs
