#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <random>

namespace dhs {
namespace {

constexpr size_t kMaxPendingOutputs = 4096;

uint64_t random_seed() {
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::chrono::steady_clock::time_point steady_time_of(absl::Time time) {
  const absl::Duration wait = std::min(time - absl::Now(), absl::Hours(24 * 365));
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
}

const char* mode_name(ResidencyMode mode) {
  switch (mode) {
    case ResidencyMode::kAdaptive:
      return "adaptive";
    case ResidencyMode::kFixed:
      return "fixed";
    case ResidencyMode::kResident:
      return "resident";
  }
  return "?";
}

// What one rank's accounting knows.
void add_memory(const KvManager& kv, EngineState& state) {
  const KvCapacity& capacity = kv.capacity();
  const KvUsage usage = kv.usage();
  state.chunks_free += usage.chunks_free;
  state.device_pool_bytes += capacity.num_chunks * capacity.chunk_bytes;
  state.device_index_bytes += usage.chunks_index * capacity.chunk_bytes;
  for (size_t g = 0; g < state.groups.size(); ++g) {
    state.groups[g].chunks += usage.chunks_rows[g];
    state.device_row_cache_bytes += usage.chunks_rows[g] * capacity.chunk_bytes;
  }
  const int64_t block_bytes = kv.geometry().host_block_bytes;
  state.host_pool_bytes += capacity.num_host_blocks * block_bytes;
  state.host_used_bytes += usage.host_blocks_used * block_bytes;
  state.host_cached_bytes += usage.host_blocks_cached * block_bytes;
}

std::vector<KvManager*> pointers_to(const std::vector<std::unique_ptr<KvManager>>& managers) {
  std::vector<KvManager*> pointers;
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
      kv_(std::move(kv)),
      executor_(std::move(executor)),
      scheduler_(config.scheduler, pointers_to(kv_), model_.eos_token_ids) {
  publish_state();
  output_thread_ = std::thread([this] { run_outputs(); });
  engine_thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() { drain(absl::ZeroDuration()); }

// ---- Any thread ---------------------------------------------------------------------------------

absl::Status EngineLoop::validate_request(const GenerateRequest& request) const {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens == 0) {
    return absl::InvalidArgumentError("the prompt has no tokens; at least 1 is needed");
  }
  if (prompt_tokens > config_.limits.max_prompt_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", prompt_tokens, " tokens; the limit is ",
                     config_.limits.max_prompt_tokens, " (limits.max_prompt_tokens)"));
  }
  for (TokenId token : request.prompt) {
    if (token < 0 || token >= model_.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "prompt token ", token, " is outside the vocabulary (0 to ", model_.vocab_size - 1, ")"));
    }
  }
  DHS_RETURN_IF_ERROR(validate(request.sampling, config_.limits, model_.vocab_size));
  const int64_t total = prompt_tokens + request.sampling.max_tokens;
  if (total > model_.max_context) {
    return absl::InvalidArgumentError(absl::StrCat(
        prompt_tokens, " prompt tokens + max_tokens ", request.sampling.max_tokens, " = ", total,
        " exceeds the context of ", model_.max_context, " tokens; shorten one of them"));
  }
  return kv_.front()->fits(total);
}

absl::Status EngineLoop::reserve_queue_place(int64_t num_tokens) {
  MutexLock lock(mutex_);
  if (draining_) return absl::UnavailableError("the engine is draining");
  if (!failure_.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the engine can run no more steps: ", failure_.message(),
                     "; restart it and send the request to another one"));
  }
  const SchedulerConfig& limits = config_.scheduler;
  if (num_tokens > limits.max_queued_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", num_tokens, " tokens; the queue holds at most ",
                     limits.max_queued_tokens, " (scheduler.max_queued_tokens)"));
  }
  const int64_t queued = state_.queued_requests + num_arriving_;
  const int64_t queued_tokens = state_.queued_tokens + num_arriving_tokens_;
  if (queued >= limits.max_queued_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat(queued, " requests are queued, the limit is ", limits.max_queued_requests,
                     " (scheduler.max_queued_requests); retry later"));
  }
  if (queued_tokens + num_tokens > limits.max_queued_tokens) {
    return absl::ResourceExhaustedError(absl::StrCat(
        queued_tokens, " prompt tokens are queued, ", num_tokens, " more exceed the limit of ",
        limits.max_queued_tokens, " (scheduler.max_queued_tokens); retry later"));
  }
  ++num_arriving_;
  num_arriving_tokens_ += num_tokens;
  ++num_unfinished_;
  return absl::OkStatus();
}

absl::StatusOr<RequestId> EngineLoop::submit(GenerateRequest request,
                                             std::shared_ptr<TokenSink> sink) {
  DHS_CHECK(sink != nullptr, "submit without a sink");
  DHS_RETURN_IF_ERROR(validate_request(request));
  DHS_RETURN_IF_ERROR(reserve_queue_place(static_cast<int64_t>(request.prompt.size())));
  if (!request.sampling.seed.has_value()) request.sampling.seed = random_seed();
  if (!config_.kv.prefix_cache) request.bypass_prefix_cache = true;
  const RequestId id(++num_requests_);
  // A place was reserved above, and the engine thread outlives every reservation.
  auto arrival = std::make_unique<Submit>(Submit{id, std::move(request), std::move(sink)});
  DHS_CHECK(submissions_.push(std::move(arrival)), "the engine stopped with a request arriving");
  return id;
}

// A full queue needs no waking: the engine thread has work.
void EngineLoop::wake() {
  std::unique_ptr<Submit> nothing;
  submissions_.try_push(nothing);
}

void EngineLoop::cancel(RequestId request) {
  {
    MutexLock lock(mutex_);
    cancelled_.push_back(request);
  }
  wake();
}

void EngineLoop::set_paused(RequestId request, bool is_paused) {
  {
    MutexLock lock(mutex_);
    paused_.emplace_back(request, is_paused);
  }
  wake();
}

EngineState EngineLoop::state() const {
  MutexLock lock(mutex_);
  return state_;
}

void EngineLoop::drain(absl::Duration timeout) {
  MutexLock drain_lock(drain_mutex_);
  if (!engine_thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    const absl::Duration longest = std::min(timeout, absl::Hours(24 * 365));
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(longest);
    while (num_unfinished_ > 0 && lock.wait_until(all_finished_, deadline)) {
    }
    if (num_unfinished_ > 0) {
      log_warning("engine: cancelling ", num_unfinished_, " requests at the end of the drain");
    }
    cancel_all_ = true;
    stop_ = true;
  }
  wake();
  engine_thread_.join();
  outputs_.close();
  output_thread_.join();
}

// ---- Engine thread ------------------------------------------------------------------------------

void EngineLoop::run() {
  while (true) {
    take_submissions();
    std::vector<RequestUpdate> updates = apply_controls();
    if (stopping_ && scheduler_.idle() && in_flight_.empty()) {
      count(updates);
      publish_state();
      deliver(updates);
      return;
    }
    step(std::move(updates));
  }
}

// Waits when there is nothing to do; otherwise only takes what has arrived.
void EngineLoop::take_submissions() {
  auto enqueue = [this](std::unique_ptr<Submit> submit) {
    if (submit == nullptr) return;
    const auto num_tokens = static_cast<int64_t>(submit->request.prompt.size());
    sinks_.emplace(submit->id, std::move(submit->sink));
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
  std::vector<RequestId> cancelled;
  std::vector<std::pair<RequestId, bool>> paused;
  bool cancel_all = false;
  {
    MutexLock lock(mutex_);
    stopping_ = stop_ && num_arriving_ == 0;
    cancel_all = cancel_all_;
    cancelled = cancelled_;
    paused = paused_;
    if (num_arriving_ == 0) cancelled_.clear();
    if (num_arriving_ == 0) paused_.clear();
  }
  for (const auto& [id, is_paused] : paused) scheduler_.set_paused(id, is_paused);
  if (cancel_all) cancelled = scheduler_.requests();
  std::vector<RequestUpdate> updates;
  for (RequestId id : cancelled) {
    auto update = scheduler_.finish(id, FinishReason::kCancelled, absl::OkStatus());
    if (update.has_value()) updates.push_back(*std::move(update));
  }
  return updates;
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
  scheduler_.commit(plan, *result, updates);
  for (const RankPlan& rank : plan.ranks) {
    for (const SequenceWork& work : rank.work) totals_.prompt_tokens += work.num_prompt_tokens;
  }
}

void EngineLoop::fail_step(const StepPlan& plan, const absl::Status& error,
                           std::vector<RequestUpdate>& updates) {
  log_error("engine: step ", plan.step.value, " failed: ", error.ToString());
  if (absl::IsAborted(error)) {
    MutexLock lock(mutex_);
    failure_ = error;
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
    const auto sink = sinks_.find(update.request);
    DHS_CHECK(sink != sinks_.end(), "request ", update.request.value, " has no sink");
    const bool is_last = update.finished.has_value();
    outputs_.push({sink->second, std::move(update.tokens), std::move(update.finished)});
    if (is_last) sinks_.erase(sink);
  }
}

void EngineLoop::publish_state() {
  EngineState state = totals_;
  state.model_name = model_.name;
  state.residency_mode = mode_name(config_.residency.mode);
  executor_->describe(state);
  state.running_requests = scheduler_.num_running();
  state.queued_requests = scheduler_.num_queued();
  state.queued_tokens = scheduler_.num_queued_tokens();
  state.parked_requests = scheduler_.num_parked();
  state.preemptions = scheduler_.num_preemptions();
  state.chunk_bytes = kv_.front()->capacity().chunk_bytes;
  for (const auto& kv : kv_) add_memory(*kv, state);
  MutexLock lock(mutex_);
  state_ = std::move(state);
}

// ---- Output thread ------------------------------------------------------------------------------

void EngineLoop::run_outputs() {
  while (std::optional<Output> output = outputs_.pop()) {
    if (!output->tokens.empty()) output->sink->on_tokens(output->tokens);
    if (!output->finished.has_value()) continue;
    output->sink->on_finished(*output->finished);
    output->sink.reset();
    MutexLock lock(mutex_);
    if (--num_unfinished_ == 0) all_finished_.notify_all();
  }
}

}  // namespace dhs
