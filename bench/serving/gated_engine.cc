#include "gated_engine.h"

#include <absl/time/clock.h>
#include <sched.h>

#include <cerrno>
#include <utility>

#include "engine/start.h"
#include "workload.h"

namespace dhs::bench {
namespace {

// The engine describes its state between two steps, outside what it takes for their time.
class GatedExecutor final : public Executor {
 public:
  GatedExecutor(std::unique_ptr<Executor> executor, std::shared_ptr<Gate> gate)
      : executor_(std::move(executor)), gate_(std::move(gate)) {}

  int max_in_flight() const override { return executor_->max_in_flight(); }
  void submit(const StepPlan& plan) override { executor_->submit(plan); }
  absl::StatusOr<StepResult> collect() override { return executor_->collect(); }
  void describe(EngineState& state) const override {
    executor_->describe(state);
    gate_->pass();
  }

 private:
  const std::unique_ptr<Executor> executor_;
  const std::shared_ptr<Gate> gate_;
};

}  // namespace

void stay_on_this_processor() {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(sched_getcpu(), &processors);
  if (sched_setaffinity(0, sizeof processors, &processors) != 0) {
    die(absl::ErrnoToStatus(errno, "cannot stay on one processor"));
  }
}

void Gate::open() {
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  is_waiting_ = false;
  ++num_openings_;
  changed_.notify_all();
}

absl::Time Gate::close() {
  std::unique_lock lock(mutex_);
  is_open_ = false;
  changed_.wait(lock, [&] { return is_waiting_; });
  return arrived_;
}

void Gate::pass() {
  std::unique_lock lock(mutex_);
  if (is_open_) return;
  arrived_ = absl::Now();
  is_waiting_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&, before = num_openings_] { return num_openings_ > before; });
}

GatedEngine start_gated_engine(const EngineConfig& config) {
  auto gate = std::make_shared<Gate>();
  auto engine = or_die(start_engine_with(config, [&](std::unique_ptr<Executor> executor) {
    return std::make_unique<GatedExecutor>(std::move(executor), gate);
  }));
  return {std::move(gate), std::move(engine)};
}

}  // namespace dhs::bench
