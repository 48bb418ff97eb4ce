// The loop: offer requests, plan, execute, commit; and what is counted of it.
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "dhisparse/base.h"
#include "dhisparse/kv.h"
#include "dhisparse/scheduler.h"
#include "dhisparse/sim.h"
#include "sim/capacity.h"
#include "sim/recorded_load.h"
#include "sim/sim_executor.h"

namespace dhs {
namespace sim {
namespace {

// Prompts are computed elsewhere: the scheduler takes any of them whole.
constexpr int kUnlimitedTokens = 1 << 30;
// Plans in a row in which nothing decodes: more than it takes to admit everybody.
constexpr int kMaxIdlePlans = 100;

SchedulerConfig scheduler_config(const SimConfig& config) {
  SchedulerConfig scheduler;
  scheduler.max_running = config.scheduler.max_running;
  scheduler.max_batched_tokens = kUnlimitedTokens;
  scheduler.prefill_chunk = kUnlimitedTokens;
  scheduler.draft = {.num_tokens = config.draft.num_tokens,
                     .is_adaptive = config.draft.is_adaptive};
  return scheduler;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::llround(share * last))];
}

class Simulation {
 public:
  // load: null where selections are drawn.
  Simulation(const SimConfig& config, const Capacity& capacity, const RecordedLoad* load)
      : config_(config),
        load_(load),
        kv_(capacity.geometry, capacity.memory, config.residency),
        scheduler_(scheduler_config(config), {&kv_}, {}),
        executor_(config, capacity, load),
        offered_(config.workload.concurrency) {
    report_.config = config;
    report_.memory = capacity.summary;
    report_.offered_on_rank = offered_on_rank(config, offered_);
    report_.fetch_fraction_of_group.resize(config.run.sampled_groups);
    rows_of_group_.resize(config.run.sampled_groups);
  }

  SimReport run();

 private:
  struct Speed {  // of a request within the measured steps
    double seconds = 0;
    int64_t num_tokens = 0;
  };

  void change_load();
  void offer();
  bool step();
  void note_updates(const std::vector<RequestUpdate>& updates);
  void note_changes();
  void measure();
  void add_to_series();
  void finish_report();

  const SimConfig config_;
  const RecordedLoad* load_;
  KvManager kv_;
  Scheduler scheduler_;
  SimExecutor executor_;
  int64_t offered_;
  std::deque<RequestId> requests_;  // in the system, the newest last
  uint64_t num_requests_ = 0;       // ever
  int64_t step_ = 0;                // counted from the first measured one
  absl::Time now_ = absl::UnixEpoch();
  SimReport report_;
  StepTimes times_;
  int64_t num_rows_ = 0;
  int64_t num_decodes_ = 0;
  int64_t num_tokens_ = 0;
  double tokens_all_ranks_ = 0;
  double fetched_rows_ = 0;
  double rows_per_request_ = 0;
  std::vector<RowCounts> rows_of_group_;
  std::map<uint64_t, Speed> speeds_;
  uint64_t first_of_change_ = 0;  // the first request that the latest change brought
};

// Requests of the same context whose outputs are long enough to outlast a short run, or recorded
// ones.
void Simulation::offer() {
  const int64_t wanted = offered_on_rank(config_, offered_);
  while (std::ssize(requests_) < wanted) {
    const RequestId id(++num_requests_);
    GenerateRequest request;
    request.prompt.resize(config_.workload.context);
    request.sampling.max_tokens = static_cast<int32_t>(config_.workload.output_tokens);
    if (load_ != nullptr) {
      const int64_t recorded = recorded_request(*load_, id);
      request.prompt.resize(load_->first_tokens(recorded));
      // The first token comes with the prompt.
      request.sampling.max_tokens = static_cast<int32_t>(load_->num_rows(recorded) + 1);
    }
    request.sampling.seed = id.value;
    request.sampling.ignore_eos = true;
    request.bypass_prefix_cache = true;
    scheduler_.enqueue(id, std::move(request));
    requests_.push_back(id);
  }
  while (std::ssize(requests_) > wanted) {
    const RequestId id = requests_.back();
    requests_.pop_back();
    scheduler_.finish(id, FinishReason::kCancelled, absl::OkStatus());
    executor_.forget(id);
  }
}

void Simulation::change_load() {
  for (const SimWorkload::Change& change : config_.workload.changes) {
    if (change.step != step_) continue;
    if (!report_.changes.empty() && report_.changes.back().step == step_) continue;
    offered_ = change.concurrency;
    executor_.set_concurrency(offered_);
    report_.changes.push_back({.step = step_, .concurrency = offered_});
    first_of_change_ = num_requests_ + 1;
  }
}

void Simulation::note_updates(const std::vector<RequestUpdate>& updates) {
  const double seconds = executor_.latest().times.total();
  for (const RequestUpdate& update : updates) {
    if (step_ >= 0 && seconds > 0) {
      Speed& speed = speeds_[update.request.value];
      // A request's first token comes with its prompt, not with this step.
      if (speed.num_tokens > 0 || update.tokens.size() > 1 ||
          executor_.latest().num_admitted == 0) {
        speed.seconds += seconds;
        speed.num_tokens += std::ssize(update.tokens);
      }
    }
    if (!update.finished.has_value()) continue;
    executor_.forget(update.request);
    std::erase(requests_, update.request);
  }
}

bool Simulation::step() {
  std::vector<RequestUpdate> updates;
  const StepPlan plan = scheduler_.plan(now_, updates);
  const StepResult result = executor_.execute(plan.ranks[0]);
  now_ += result.elapsed;
  scheduler_.commit(plan, result, updates);
  note_updates(updates);
  return executor_.latest().num_decodes > 0;
}

void Simulation::note_changes() {
  if (report_.changes.empty() || executor_.latest().num_admitted == 0) return;
  SimChangeReport& change = report_.changes.back();
  if (num_requests_ < first_of_change_) return;
  change.admitted += executor_.latest().num_admitted;
  change.chunks_released += executor_.latest().chunks_released;
  change.steps_to_admit = step_ - change.step + 1;
}

void Simulation::measure() {
  const StepRecord& latest = executor_.latest();
  times_.add(latest.times);
  report_.rows.add(latest.rows);
  report_.seconds += latest.times.total();
  num_rows_ += latest.num_rows;
  num_decodes_ += latest.num_decodes;
  num_tokens_ += latest.num_tokens;
  tokens_all_ranks_ += static_cast<double>(latest.num_tokens) * executor_.share_of_rank();
  fetched_rows_ += latest.fetched_rows;
  report_.max_running = std::max(report_.max_running, latest.num_decodes);
  double slots = 0;
  for (int g = 0; g < config_.run.sampled_groups; ++g) {
    slots += static_cast<double>(executor_.caches().num_slots(g));
    rows_of_group_[g].add(executor_.caches().counts_of_groups()[g]);
  }
  rows_per_request_ += slots / config_.run.sampled_groups / static_cast<double>(latest.num_decodes);
}

void Simulation::add_to_series() {
  const int64_t period = config_.run.series_steps;
  if (period == 0) return;
  if (step_ % period == 0) report_.series.push_back({.first_step = step_});
  SimPoint& point = report_.series.back();
  const StepRecord& latest = executor_.latest();
  point.rows.add(latest.rows);
  point.chunks_released += latest.chunks_released;
  point.rows_refilled += latest.rows_refilled;
  point.step_time += latest.times.total() / static_cast<double>(period);
  point.time = report_.seconds;
  point.concurrency = offered_;
  point.running = latest.num_decodes;
  point.waiting = std::ssize(requests_) - scheduler_.num_running();
  const KvUsage usage = kv_.usage();
  point.chunks_free = usage.chunks_free;
  point.chunks_index = usage.chunks_index;
  point.cached_rows = 0;
  for (int g = 0; g < config_.run.sampled_groups; ++g) {
    point.cached_rows += executor_.caches().num_slots(g) / config_.run.sampled_groups;
  }
}

void Simulation::finish_report() {
  const auto steps = static_cast<double>(config_.run.measured_steps);
  report_.steps = config_.run.measured_steps;
  report_.output_tokens_per_s_per_gpu = tokens_all_ranks_ / report_.seconds;
  std::vector<double> tpot;
  double seconds = 0;
  double tokens = 0;
  for (const auto& [id, speed] : speeds_) {
    if (speed.num_tokens == 0) continue;
    tpot.push_back(speed.seconds / static_cast<double>(speed.num_tokens));
    seconds += speed.seconds;
    tokens += static_cast<double>(speed.num_tokens);
  }
  report_.tpot_mean = tokens == 0 ? 0 : seconds / tokens;
  report_.tpot_p50 = percentile(tpot, 0.5);
  report_.tpot_p99 = percentile(tpot, 0.99);
  report_.step_time = report_.seconds / steps;
  report_.times = times_.scaled(1 / steps);
  report_.fetched_rows_per_step = fetched_rows_ / steps;
  report_.acceptance_length = static_cast<double>(num_tokens_) / static_cast<double>(num_decodes_);
  report_.verified_drafts =
      static_cast<double>(num_rows_ - num_decodes_) / static_cast<double>(num_decodes_);
  report_.draft_cap = scheduler_.draft_cap();
  report_.mean_running = static_cast<double>(num_decodes_) / steps;
  report_.num_preemptions = scheduler_.num_preemptions();
  report_.rows_per_request = rows_per_request_ / steps;
  for (size_t g = 0; g < rows_of_group_.size(); ++g) {
    report_.fetch_fraction_of_group[g] = rows_of_group_[g].fetch_fraction();
  }
}

SimReport Simulation::run() {
  int num_idle = 0;
  for (step_ = -config_.run.warmup_steps; step_ < config_.run.measured_steps;) {
    change_load();
    offer();
    const bool has_decoded = step();
    note_changes();
    num_idle = has_decoded ? 0 : num_idle + 1;
    DHS_CHECK(num_idle <= kMaxIdlePlans, num_idle, " plans without a decoding request");
    if (!has_decoded) continue;
    if (step_ >= 0) {
      measure();
      add_to_series();
    }
    ++step_;
  }
  finish_report();
  return std::move(report_);
}

}  // namespace
}  // namespace sim

namespace {

// A configuration with what a recording says in its place, and the recording.
struct Prepared {
  SimConfig config;
  std::optional<sim::RecordedLoad> load;
};

absl::StatusOr<Prepared> prepare(const SimConfig& config) {
  Prepared prepared{.config = config};
  if (config.workload.trace.empty()) return prepared;
  DHS_ASSIGN_OR_RETURN(prepared.load, sim::RecordedLoad::read(config.workload.trace));
  const TraceShape shape = prepared.load->shape();
  if (shape.top_k != config.model.top_k) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.workload.trace, " was recorded with a top-k of ", shape.top_k, ", model.top_k is ",
        config.model.top_k, "; describe the model that was recorded"));
  }
  prepared.config.run.sampled_groups = shape.num_groups;
  prepared.config.workload.context = prepared.load->longest_prompt();
  prepared.config.workload.output_tokens = prepared.load->most_rows() + 1;
  return prepared;
}

std::vector<absl::Status> errors_of(const SimConfig& config) {
  std::vector<absl::Status> errors = {validate(sim::make_profile(config))};
  for (const GroupGeometry& group : sim::make_sampled_geometry(config).groups) {
    if (group.record_bytes <= config.deployment.chunk_bytes) continue;
    errors.push_back(absl::InvalidArgumentError(
        absl::StrCat("deployment.chunk (", config.deployment.chunk_bytes, ") holds no record of ",
                     group.record_bytes, " bytes; raise it or run.sampled_groups")));
    break;
  }
  const absl::StatusOr<sim::Capacity> capacity = sim::plan_capacity(config);
  errors.push_back(capacity.status());
  std::erase_if(errors, [](const absl::Status& error) { return error.ok(); });
  if (errors.empty()) {
    errors.push_back(KvManager(capacity->geometry, capacity->memory, config.residency)
                         .fits(config.workload.context + config.workload.output_tokens));
  }
  return errors;
}

}  // namespace

absl::Status validate(const SimConfig& config) {
  const absl::StatusOr<Prepared> prepared = prepare(config);
  if (!prepared.ok()) return prepared.status();
  const std::vector<absl::Status> errors = errors_of(prepared->config);
  if (errors.size() == 1) return errors.front();
  return absl::Status(errors.front().code(),
                      absl::StrJoin(errors, "\n", [](std::string* out, const absl::Status& error) {
                        absl::StrAppend(out, error.message());
                      }));
}

SimReport run_simulation(const SimConfig& config) {
  const absl::StatusOr<Prepared> prepared = prepare(config);
  DHS_CHECK(prepared.ok(), prepared.status().message());
  const absl::StatusOr<sim::Capacity> capacity = sim::plan_capacity(prepared->config);
  DHS_CHECK(capacity.ok(), capacity.status().message());
  const sim::RecordedLoad* load = prepared->load.has_value() ? &*prepared->load : nullptr;
  return sim::Simulation(prepared->config, *capacity, load).run();
}

}  // namespace dhs
