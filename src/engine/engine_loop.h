// The engine: one thread that plans, executes and commits, one thread that tells the sinks.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "dhisparse/engine.h"
#include "dhisparse/kv.h"
#include "dhisparse/scheduler.h"
#include "dhisparse/sync.h"
#include "engine/executor.h"
#include "engine/request_meter.h"

namespace dhs {

class EngineLoop final : public Engine {
 public:
  // kv: of each rank that holds requests of its own, all alike. It and `executor` belong to the
  // engine thread from here on.
  EngineLoop(const EngineConfig& config, ModelInfo model,
             std::vector<std::unique_ptr<KvManager>> kv, std::unique_ptr<Executor> executor);
  ~EngineLoop() override;

  const ModelInfo& model_info() const override { return model_; }
  absl::StatusOr<RequestId> submit(GenerateRequest request,
                                   std::shared_ptr<TokenSink> sink) override;
  void end(RequestId request, FinishReason reason) override;
  void set_paused(RequestId request, bool is_paused) override;
  EngineState state() const override;
  absl::Status reconfigure(const ResidencyConfig& residency,
                           const SchedulerConfig& scheduler) override;
  void watch_failure(std::function<void(const absl::Status&)> on_failure) override;
  void drain(absl::Duration timeout) override;

 private:
  struct Submit {
    RequestId id;
    GenerateRequest request;
    std::shared_ptr<TokenSink> sink;
  };
  struct Recipient {
    std::shared_ptr<TokenSink> sink;
    absl::Time arrived;
  };
  struct Output {
    RequestId request;
    Recipient to;
    std::vector<TokenOutput> tokens;
    std::optional<Finished> finished;
  };

  struct Reconfiguration {
    ResidencyConfig residency;
    SchedulerConfig scheduler;
  };

  struct InFlight {
    StepPlan plan;
    absl::Time submitted;
  };

  absl::Status validate_request(const GenerateRequest& request) const;
  absl::Status check_length(int64_t num_tokens) const;
  absl::Status check_queue(int64_t num_tokens) DHS_REQUIRES(mutex_);
  absl::Status reserve_queue_place(int64_t num_tokens);
  absl::Status check_residency(const ResidencyConfig& residency) const;
  void wake();
  void run();
  void run_outputs();
  void take_submissions();
  std::vector<RequestUpdate> apply_controls();
  void apply_reconfiguration();
  void tell_failure() DHS_REQUIRES(failure_mutex_);
  void leave();
  void step(std::vector<RequestUpdate> updates);
  void collect_step(std::vector<RequestUpdate>& updates);
  void observe_step(const StepPlan& plan, absl::Duration elapsed);
  void fail_step(const StepPlan& plan, const absl::Status& error,
                 std::vector<RequestUpdate>& updates);
  void count(const std::vector<RequestUpdate>& updates);
  void deliver(std::vector<RequestUpdate>& updates);
  void publish_state();

  const EngineConfig config_;  // as at start
  const ModelInfo model_;

  // Self-synchronised.
  std::atomic<uint64_t> num_requests_{0};
  BoundedQueue<std::unique_ptr<Submit>> submissions_;  // null only wakes the engine thread
  BoundedQueue<Output> outputs_;
  RequestMeter request_meter_;
  const int64_t longest_request_;  // that any residency has to allow

  mutable Mutex mutex_;
  Condition all_finished_;
  EngineState state_ DHS_GUARDED_BY(mutex_);
  int64_t num_unfinished_ DHS_GUARDED_BY(mutex_) = 0;  // submitted, not yet told that they finished
  int64_t num_arriving_ DHS_GUARDED_BY(mutex_) = 0;    // submitted, not yet with the scheduler
  int64_t num_arriving_tokens_ DHS_GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<RequestId, FinishReason>> ended_ DHS_GUARDED_BY(mutex_);
  std::vector<std::pair<RequestId, bool>> paused_ DHS_GUARDED_BY(mutex_);  // in order
  bool cancel_all_ DHS_GUARDED_BY(mutex_) = false;
  bool stop_ DHS_GUARDED_BY(mutex_) = false;
  bool draining_ DHS_GUARDED_BY(mutex_) = false;
  absl::Status failure_ DHS_GUARDED_BY(mutex_);  // for good: of the group of ranks
  SchedulerConfig queue_limits_ DHS_GUARDED_BY(mutex_);
  int64_t refused_queue_full_ DHS_GUARDED_BY(mutex_) = 0;
  int64_t refused_unavailable_ DHS_GUARDED_BY(mutex_) = 0;
  std::optional<Reconfiguration> wanted_ DHS_GUARDED_BY(mutex_);
  bool has_left_ DHS_GUARDED_BY(mutex_) = false;  // the engine thread
  Condition settled_;                             // wanted_ is taken over, or has_left_

  Mutex drain_mutex_;        // held by the one thread that drains
  Mutex reconfigure_mutex_;  // held by the one thread that reconfigures
  Mutex failure_mutex_;      // held while on_failure_ runs; taken before mutex_
  std::function<void(const absl::Status&)> on_failure_ DHS_GUARDED_BY(failure_mutex_);

  // Engine thread only; but fits() is asked under mutex_, under which residency changes.
  std::vector<std::unique_ptr<KvManager>> kv_;
  std::unique_ptr<Executor> executor_;
  Scheduler scheduler_;
  ResidencyConfig residency_;
  absl::flat_hash_map<RequestId, Recipient> recipients_;
  std::deque<InFlight> in_flight_;  // submitted, not collected
  absl::Time latest_collect_;
  EngineState totals_;  // counters that the loop keeps
  bool stopping_ = false;
  bool has_freed_memory_ = false;  // the store does not know yet: one more step is due

  std::thread output_thread_;
  std::thread engine_thread_;
};

}  // namespace dhs
