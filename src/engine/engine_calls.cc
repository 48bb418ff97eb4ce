// What other threads ask of the engine.
#include <algorithm>
#include <chrono>
#include <random>

#include "dhisparse/capacity_plan.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"

namespace dhs {
namespace {

uint64_t random_seed() {
  static thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// `max`: as at start.
absl::Status check_laid_out(const char* key, int value, int max) {
  if (value <= max) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      key, " is ", value, ", memory was laid out for ", max, " at start; more needs a restart"));
}

}  // namespace

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
  DHS_RETURN_IF_ERROR(validate_adjusted_tokens(request.sampling, request.prompt, config_.limits,
                                               model_.vocab_size));
  return check_length(total);
}

absl::Status EngineLoop::check_length(int64_t num_tokens) const {
  if (num_tokens <= longest_request_) return absl::OkStatus();
  MutexLock lock(mutex_);
  DHS_RETURN_IF_ERROR(kv_.front()->fits(num_tokens));
  return absl::ResourceExhaustedError(
      absl::StrCat("a request of ", num_tokens, " tokens (prompt + max_tokens) exceeds the ",
                   longest_request_, " that fitted the memory at start; shorten the request"));
}

absl::Status EngineLoop::check_queue(int64_t num_tokens) {
  if (draining_) return absl::UnavailableError("the engine is draining");
  if (!failure_.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the engine can run no more steps: ", failure_.message(),
                     "; restart it and send the request to another one"));
  }
  const SchedulerConfig& limits = queue_limits_;
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
  return absl::OkStatus();
}

absl::Status EngineLoop::reserve_queue_place(int64_t num_tokens) {
  MutexLock lock(mutex_);
  const absl::Status status = check_queue(num_tokens);
  refused_queue_full_ += absl::IsResourceExhausted(status) ? 1 : 0;
  refused_unavailable_ += absl::IsUnavailable(status) ? 1 : 0;
  DHS_RETURN_IF_ERROR(status);
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
  if (!request.arrived.has_value()) request.arrived = absl::Now();
  if (!config_.kv.prefix_cache) request.bypass_prefix_cache = true;
  const RequestId id(++num_requests_);
  // A place was reserved above, and the engine thread outlives every reservation. After the limit
  // was raised the queue may be full all the same: then the engine thread is about to take it.
  auto arrival = std::make_unique<Submit>(Submit{id, std::move(request), std::move(sink)});
  DHS_CHECK(submissions_.push(std::move(arrival)), "the engine stopped with a request arriving");
  return id;
}

// A full queue needs no waking: the engine thread has work.
void EngineLoop::wake() {
  std::unique_ptr<Submit> nothing;
  submissions_.try_push(nothing);
}

void EngineLoop::end(RequestId request, FinishReason reason) {
  {
    MutexLock lock(mutex_);
    ended_.emplace_back(request, reason);
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
  EngineState state;
  {
    MutexLock lock(mutex_);
    state = state_;
    state.refused_queue_full = refused_queue_full_;
    state.refused_unavailable = refused_unavailable_;
    state.failure = std::string(failure_.message());
  }
  state.request_figures = request_meter_.figures();
  return state;
}

absl::Status EngineLoop::check_residency(const ResidencyConfig& residency) const {
  const KvManager& kv = *kv_.front();
  const int64_t longest =
      longest_request(KvManager(kv.geometry(), kv.capacity(), residency), model_.max_context);
  if (longest >= longest_request_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "residency.mode ", name_of(residency.mode), " with residency.fixed_rows_per_request ",
      residency.fixed_rows_per_request, ": the longest request that fits the device would have ",
      longest, " tokens, clients were promised ", longest_request_, "; it needs a restart"));
}

absl::Status EngineLoop::reconfigure(const ResidencyConfig& residency,
                                     const SchedulerConfig& scheduler) {
  DHS_RETURN_IF_ERROR(check_laid_out("scheduler.max_running", scheduler.max_running,
                                     config_.scheduler.max_running));
  DHS_RETURN_IF_ERROR(check_laid_out("scheduler.max_batched_tokens", scheduler.max_batched_tokens,
                                     config_.scheduler.max_batched_tokens));
  DHS_RETURN_IF_ERROR(check_residency(residency));
  MutexLock one_at_a_time(reconfigure_mutex_);
  {
    MutexLock lock(mutex_);
    wanted_ = {residency, scheduler};
    wanted_->scheduler.draft = config_.scheduler.draft;  // it stays as it is
  }
  wake();
  MutexLock lock(mutex_);
  while (wanted_.has_value() && !has_left_) lock.wait(settled_);
  if (!wanted_.has_value()) return absl::OkStatus();
  wanted_.reset();
  return absl::UnavailableError("the engine has stopped");
}

void EngineLoop::watch_failure(std::function<void(const absl::Status&)> on_failure) {
  MutexLock lock(failure_mutex_);
  on_failure_ = std::move(on_failure);
  tell_failure();
}

// Once, to whoever watches.
void EngineLoop::tell_failure() {
  absl::Status failure;
  {
    MutexLock lock(mutex_);
    failure = failure_;
  }
  if (!failure.ok() && on_failure_) std::exchange(on_failure_, nullptr)(failure);
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

}  // namespace dhs
