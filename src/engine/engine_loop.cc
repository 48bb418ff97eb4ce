#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>

#include "dhisparse/capacity_plan.h"
#include "engine/engine_plan.h"

namespace dhs {
namespace {

constexpr size_t kMaxPendingOutputs = 4096;

std::chrono::steady_clock::time_point steady_time_of(absl::Time time) {
  const absl::Duration wait = std::min(time - absl::Now(), absl::Hours(24 * 365));
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
}

// What one rank's accounting knows.
void add_memory(const KvManager& kv, EngineState& state) {
  const KvCapacity& capacity = kv.capacity();
  const KvUsage usage = kv.usage();
  state.chunks_free += usage.chunks_free;
  state.index_moves.grown += usage.index_moves.grown;
  state.index_moves.released += usage.index_moves.released;
  state.draft_moves.grown += usage.draft_moves.grown;
  state.draft_moves.released += usage.draft_moves.released;
  state.prefix.looked_up += usage.prefix.looked_up;
  state.prefix.on_device += usage.prefix.on_device;
  state.prefix.on_host += usage.prefix.on_host;
  state.device_pool_bytes += capacity.num_chunks * capacity.chunk_bytes;
  state.device_index_bytes += usage.chunks_index * capacity.chunk_bytes;
  state.device_draft_bytes += usage.chunks_draft * capacity.chunk_bytes;
  for (size_t g = 0; g < state.groups.size(); ++g) {
    GroupState& group = state.groups[g];
    group.chunks += usage.chunks_rows[g];
    group.chunks_required += usage.chunks_required[g];
    group.chunks_grown += usage.row_moves[g].grown;
    group.chunks_released += usage.row_moves[g].released;
    state.device_row_cache_bytes += usage.chunks_rows[g] * capacity.chunk_bytes;
  }
  const int64_t block_bytes = kv.geometry().host_block_bytes;
  state.host_pool_bytes += capacity.num_host_blocks * block_bytes;
  state.host_used_bytes += usage.host_blocks_used * block_bytes;
  state.host_cached_bytes += usage.host_blocks_cached * block_bytes;
}

std::vector<KvManager*> pointers_to(const std::vector<std::unique_ptr<KvManager>>& managers) {
  std::vector<KvManager*> pointers;
  pointers.reserve(managers.size());
  for (const auto& manager : managers) pointers.push_back(manager.get());
  return pointers;
}

}  // namespace

EngineLoop::EngineLoop(const EngineConfig& config, ModelInfo model,
                       std::vector<std::unique_ptr<KvManager>> kv,
                       std::unique_ptr<Executor> executor)
    : config_(config),
      model_(std::move(model)),
      submissions_(config.scheduler.max_queued_requests + 1),
      outputs_(kMaxPendingOutputs),
      longest_request_(longest_request(*kv.front(), model_.max_context)),
      kv_(std::move(kv)),
      executor_(std::move(executor)),
      scheduler_(config.scheduler, pointers_to(kv_), model_.eos_token_ids),
      residency_(config.residency) {
  {
    MutexLock lock(mutex_);
    queue_limits_ = config.scheduler;
  }
  publish_state();
  output_thread_ = std::thread([this] { run_outputs(); });
  engine_thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() { drain(absl::ZeroDuration()); }

// ---- Engine thread ------------------------------------------------------------------------------

void EngineLoop::run() {
  while (true) {
    take_submissions();
    std::vector<RequestUpdate> updates = apply_controls();
    if (stopping_ && scheduler_.idle() && in_flight_.empty()) {
      count(updates);
      publish_state();
      deliver(updates);
      return leave();
    }
    step(std::move(updates));
  }
}

// Nobody waits for this thread from here on.
void EngineLoop::leave() {
  MutexLock lock(mutex_);
  has_left_ = true;
  settled_.notify_all();
}

// Waits when there is nothing to do; otherwise only takes what has arrived.
void EngineLoop::take_submissions() {
  auto enqueue = [this](std::unique_ptr<Submit> submit) {
    if (submit == nullptr) return;
    const auto num_tokens = static_cast<int64_t>(submit->request.prompt.size());
    recipients_.emplace(submit->id, Recipient{std::move(submit->sink), *submit->request.arrived});
    scheduler_.enqueue(submit->id, std::move(submit->request));
    MutexLock lock(mutex_);
    --num_arriving_;
    num_arriving_tokens_ -= num_tokens;
    ++state_.queued_requests;
    state_.queued_tokens += num_tokens;
  };
  if (scheduler_.is_at_rest() && !has_freed_memory_ && in_flight_.empty()) {
    if (auto submit = submissions_.pop_until(steady_time_of(scheduler_.next_deadline()))) {
      enqueue(*std::move(submit));
    }
  }
  while (auto submit = submissions_.try_pop()) enqueue(*std::move(submit));
}

// A cancel or a pause is asked for after its submit, so its request is with the scheduler,
// finished, or arriving: the last kind stays on the list until it has arrived.
std::vector<RequestUpdate> EngineLoop::apply_controls() {
  apply_reconfiguration();
  std::vector<std::pair<RequestId, FinishReason>> ended;
  std::vector<std::pair<RequestId, bool>> paused;
  bool cancel_all = false;
  {
    MutexLock lock(mutex_);
    stopping_ = stop_ && num_arriving_ == 0;
    cancel_all = cancel_all_;
    ended = ended_;
    paused = paused_;
    if (num_arriving_ == 0) ended_.clear();
    if (num_arriving_ == 0) paused_.clear();
  }
  for (const auto& [id, is_paused] : paused) scheduler_.set_paused(id, is_paused);
  if (cancel_all) {
    for (RequestId id : scheduler_.requests()) ended.emplace_back(id, FinishReason::kCancelled);
  }
  std::vector<RequestUpdate> updates;
  for (const auto& [id, reason] : ended) {
    auto update = scheduler_.finish(id, reason, absl::OkStatus());
    if (update.has_value()) updates.push_back(*std::move(update));
  }
  return updates;
}

// Under the lock, since other threads ask whether a request fits.
void EngineLoop::apply_reconfiguration() {
  MutexLock lock(mutex_);
  if (!wanted_.has_value()) return;
  scheduler_.set_config(wanted_->scheduler);
  scheduler_.set_residency(wanted_->residency);
  residency_ = wanted_->residency;
  queue_limits_ = wanted_->scheduler;
  wanted_.reset();
  has_freed_memory_ = true;  // chunks change hands with the next step, also when nobody is running
  settled_.notify_all();
}

// Plans and submits one step, then collects the oldest, unless the device may have another one
// queued behind it. With nothing left to compute, a step still returns freed memory to its owners.
void EngineLoop::step(std::vector<RequestUpdate> updates) {
  StepPlan planned = scheduler_.plan(absl::Now(), updates);
  in_flight_.push_back({std::move(planned), absl::Now()});
  const StepPlan& plan = in_flight_.back().plan;
  totals_.peak_running_requests = std::max(totals_.peak_running_requests, scheduler_.num_running());
  const bool is_last = !plan.has_work();
  totals_.steps += is_last ? 0 : 1;
  has_freed_memory_ = !is_last;
  executor_->submit(plan);
  while (!in_flight_.empty() && (is_last || std::ssize(in_flight_) >= executor_->max_in_flight())) {
    collect_step(updates);
  }
  // The state first: who hears that a request finished may look at once.
  count(updates);
  publish_state();
  deliver(updates);
}

void EngineLoop::collect_step(std::vector<RequestUpdate>& updates) {
  const InFlight step = std::move(in_flight_.front());
  const StepPlan& plan = step.plan;
  in_flight_.pop_front();
  absl::StatusOr<StepResult> result = executor_->collect();
  const absl::Time now = absl::Now();
  // The device begins a step when it was submitted, or when it had ended the one before.
  const absl::Time begin = std::max(step.submitted, std::exchange(latest_collect_, now));
  has_freed_memory_ = has_freed_memory_ || plan.has_work();  // its requests may end here
  if (!result.ok()) return fail_step(plan, result.status(), updates);
  result->elapsed = now - begin;
  if (plan.has_work()) observe_step(plan, result->elapsed);
  scheduler_.commit(plan, *result, updates);
  for (const RankPlan& rank : plan.ranks) {
    for (const SequenceWork& work : rank.work) totals_.prompt_tokens += work.num_prompt_tokens;
  }
}

void EngineLoop::observe_step(const StepPlan& plan, absl::Duration elapsed) {
  int64_t num_rows = 0;
  for (const RankPlan& rank : plan.ranks) num_rows += rank.num_rows();
  totals_.step_figures.tokens.observe(static_cast<double>(num_rows));
  totals_.step_figures.seconds.observe(absl::ToDoubleSeconds(elapsed));
}

void EngineLoop::fail_step(const StepPlan& plan, const absl::Status& error,
                           std::vector<RequestUpdate>& updates) {
  log_error("engine: step ", plan.step.value, " failed: ", error.ToString());
  if (absl::IsAborted(error)) {
    MutexLock failure_lock(failure_mutex_);
    {
      MutexLock lock(mutex_);
      failure_ = error;
    }
    tell_failure();
  }
  scheduler_.abandon(plan);
  for (const RankPlan& rank : plan.ranks) {
    for (const SequenceWork& work : rank.work) {
      auto update = scheduler_.finish(work.request, FinishReason::kError, error);
      if (update.has_value()) updates.push_back(*std::move(update));
    }
  }
}

void EngineLoop::count(const std::vector<RequestUpdate>& updates) {
  for (const RequestUpdate& update : updates) {
    totals_.generated_tokens += std::ssize(update.tokens);
    if (!update.finished.has_value()) continue;
    ++totals_.finished_requests;
    totals_.cached_prompt_tokens += update.finished->usage.cached_prompt_tokens;
  }
}

void EngineLoop::deliver(std::vector<RequestUpdate>& updates) {
  for (RequestUpdate& update : updates) {
    const auto to = recipients_.find(update.request);
    DHS_CHECK(to != recipients_.end(), "request ", update.request.value, " has no sink");
    const bool is_last = update.finished.has_value();
    outputs_.push(
        {update.request, to->second, std::move(update.tokens), std::move(update.finished)});
    if (is_last) recipients_.erase(to);
  }
}

void EngineLoop::publish_state() {
  EngineState state = totals_;
  state.model_name = model_.name;
  state.residency_mode = name_of(residency_.mode);
  state.max_running = scheduler_.config().max_running;
  state.max_batched_tokens = scheduler_.config().max_batched_tokens;
  executor_->describe(state);
  state.draft_kind = name_of(config_.draft.kind);
  state.draft_cap = scheduler_.draft_cap();
  state.drafts = scheduler_.draft_counts();
  state.running_requests = scheduler_.num_running();
  state.queued_requests = scheduler_.num_queued();
  state.queued_tokens = scheduler_.num_queued_tokens();
  state.parked_requests = scheduler_.num_parked();
  state.preemptions = scheduler_.num_preemptions();
  state.parks = scheduler_.num_parks();
  state.resumes = scheduler_.num_resumes();
  state.chunk_bytes = kv_.front()->capacity().chunk_bytes;
  for (const auto& kv : kv_) add_memory(*kv, state);
  MutexLock lock(mutex_);
  state_ = std::move(state);
}

// ---- Output thread ------------------------------------------------------------------------------

void EngineLoop::run_outputs() {
  while (std::optional<Output> output = outputs_.pop()) {
    TokenSink& sink = *output->to.sink;
    const absl::Time now = absl::Now();
    request_meter_.on_tokens(output->request, output->to.arrived, std::ssize(output->tokens), now);
    if (!output->tokens.empty()) sink.on_tokens(output->tokens);
    if (!output->finished.has_value()) continue;
    request_meter_.on_finished(output->request, output->to.arrived, *output->finished, now);
    sink.on_finished(*output->finished);
    output->to.sink.reset();
    MutexLock lock(mutex_);
    if (--num_unfinished_ == 0) all_finished_.notify_all();
  }
}

}  // namespace dhs
