// An engine driven by the test: it keeps requests until the test emits tokens for them. Like the
// real one it calls sinks from one output thread, and a cancelled request ends soon.
#pragma once

#include <absl/time/time.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dhisparse/engine.h"
#include "dhisparse/sync.h"

namespace dhs {

inline std::vector<TokenOutput> tokens_of(std::string_view text) {
  std::vector<TokenOutput> tokens;
  for (const char byte : text) {
    TokenOutput token;
    token.token = static_cast<unsigned char>(byte);
    token.logprob = -0.5f;
    tokens.push_back(token);
  }
  return tokens;
}

class FakeEngine final : public Engine {
 public:
  FakeEngine() {
    info_.name = "fake";
    info_.max_context = 100;
    info_.longest_request = 100;
    info_.vocab_size = 257;
    info_.eos_token_ids = {256};
    output_ = std::thread([this] {
      while (auto job = jobs_.pop()) (*job)();
    });
  }

  ~FakeEngine() override { drain(absl::ZeroDuration()); }

  // ---- Engine ----

  const ModelInfo& model_info() const override { return info_; }

  absl::StatusOr<RequestId> submit(GenerateRequest request,
                                   std::shared_ptr<TokenSink> sink) override {
    std::lock_guard lock(mutex_);
    if (!refusal_.ok()) return refusal_;
    const RequestId id(++num_submitted_);
    requests_[id] = {std::move(request), std::move(sink)};
    if (script_) post([this, id, script = script_] { script(*this, id); });
    changed_.notify_all();
    return id;
  }

  void end(RequestId id, FinishReason reason) override {
    {
      std::lock_guard lock(mutex_);
      ++num_cancels_;
    }
    finish(id, reason);
  }

  void set_paused(RequestId id, bool is_paused) override {
    std::lock_guard lock(mutex_);
    pauses_.emplace_back(id, is_paused);
    changed_.notify_all();
  }

  absl::Status reconfigure(const ResidencyConfig& residency,
                           const SchedulerConfig& scheduler) override {
    std::lock_guard lock(mutex_);
    if (!reconfigure_status_.ok()) return reconfigure_status_;
    residency_ = residency;
    scheduler_ = scheduler;
    ++num_reconfigures_;
    return absl::OkStatus();
  }

  void watch_failure(std::function<void(const absl::Status&)> on_failure) override {
    std::lock_guard lock(mutex_);
    on_failure_ = std::move(on_failure);
  }

  EngineState state() const override {
    std::lock_guard lock(mutex_);
    EngineState state = state_;
    state.model_name = info_.name;
    state.device = "none";
    state.running_requests = static_cast<int64_t>(requests_.size());
    state.groups.push_back({.first_layer = 2, .num_layers = 4, .record_bytes = 1152});
    return state;
  }

  void drain(absl::Duration /*timeout*/) override {
    jobs_.close();
    if (output_.joinable()) output_.join();
  }

  // ---- The test's side ----

  void set_max_context(int64_t max_context) {
    info_.max_context = max_context;
    info_.longest_request = max_context;
  }
  void set_longest_request(int64_t num_tokens) { info_.longest_request = num_tokens; }
  void refuse_with(absl::Status status) {
    std::lock_guard lock(mutex_);
    refusal_ = std::move(status);
  }
  // What state() is based on.
  void set_state(EngineState state) {
    std::lock_guard lock(mutex_);
    state_ = std::move(state);
  }
  // As if no step could run any more.
  void fail_with(const absl::Status& failure) {
    std::lock_guard lock(mutex_);
    state_.failure = std::string(failure.message());
    if (on_failure_) on_failure_(failure);
  }
  void refuse_reconfigure_with(absl::Status status) {
    std::lock_guard lock(mutex_);
    reconfigure_status_ = std::move(status);
  }
  int num_reconfigures() const {
    std::lock_guard lock(mutex_);
    return num_reconfigures_;
  }
  ResidencyConfig residency() const {
    std::lock_guard lock(mutex_);
    return residency_;
  }
  SchedulerConfig scheduler() const {
    std::lock_guard lock(mutex_);
    return scheduler_;
  }
  // Run on the output thread for every request to come.
  void on_submit(std::function<void(FakeEngine&, RequestId)> script) {
    std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }

  // Waits for the `number`-th request ever (1-based) and returns its id.
  RequestId wait_for_request(uint64_t number = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_submitted_ >= number; });
    return RequestId(number);
  }
  // Waits until every request has ended.
  void wait_until_idle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_.empty(); });
  }
  GenerateRequest request(RequestId id) {
    std::lock_guard lock(mutex_);
    return requests_.at(id).request;
  }
  bool is_running(RequestId id) {
    std::lock_guard lock(mutex_);
    return requests_.count(id) > 0;
  }
  // Waits for that many calls of set_paused and returns them in order.
  std::vector<std::pair<RequestId, bool>> wait_for_pauses(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pauses_.size() >= count; });
    return pauses_;
  }
  int num_cancels() const {
    std::lock_guard lock(mutex_);
    return num_cancels_;
  }
  uint64_t num_submitted() const {
    std::lock_guard lock(mutex_);
    return num_submitted_;
  }

  // Tokens of a request that has ended are dropped.
  void emit(RequestId id, std::vector<TokenOutput> tokens) {
    post([this, id, tokens = std::move(tokens)] {
      if (const auto sink = sink_of(id)) sink->on_tokens(tokens);
    });
  }
  void emit(RequestId id, std::string_view text) { emit(id, tokens_of(text)); }

  void finish(RequestId id, Finished finished) {
    post([this, id, finished = std::move(finished)] {
      const auto sink = sink_of(id);
      if (!sink) return;
      {
        std::lock_guard lock(mutex_);
        requests_.erase(id);
        changed_.notify_all();
      }
      sink->on_finished(finished);
    });
  }
  void finish(RequestId id, FinishReason reason) {
    finish(id, {.reason = reason, .stop_token = {}, .error = {}, .usage = {}});
  }

  // Returns when everything emitted so far has been delivered.
  void flush() {
    std::mutex mutex;
    std::condition_variable done_changed;
    bool done = false;
    post([&] {
      std::lock_guard lock(mutex);
      done = true;
      done_changed.notify_all();
    });
    std::unique_lock lock(mutex);
    done_changed.wait(lock, [&] { return done; });
  }

 private:
  struct Running {
    GenerateRequest request;
    std::shared_ptr<TokenSink> sink;
  };

  void post(std::function<void()> job) { jobs_.try_push(job); }

  std::shared_ptr<TokenSink> sink_of(RequestId id) {
    std::lock_guard lock(mutex_);
    const auto found = requests_.find(id);
    return found == requests_.end() ? nullptr : found->second.sink;
  }

  ModelInfo info_;
  BoundedQueue<std::function<void()>> jobs_{1 << 20};
  std::thread output_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Running> requests_;
  uint64_t num_submitted_ = 0;
  int num_cancels_ = 0;
  std::vector<std::pair<RequestId, bool>> pauses_;
  absl::Status refusal_;
  EngineState state_;
  std::function<void(const absl::Status&)> on_failure_;
  absl::Status reconfigure_status_;
  int num_reconfigures_ = 0;
  ResidencyConfig residency_;
  SchedulerConfig scheduler_;
  std::function<void(FakeEngine&, RequestId)> script_;
};

}  // namespace dhs
