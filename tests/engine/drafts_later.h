// An engine whose first request is asked for drafts from some draw on only: what is decoded before
// is decoded as where drafting does not pay.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "engine/start.h"

namespace dhs {

// From the step on that draws its `first_drafted`th token.
class DraftsLater final : public Executor {
 public:
  DraftsLater(std::unique_ptr<Executor> executor, int64_t first_drafted)
      : executor_(std::move(executor)), first_drafted_(first_drafted) {}

  int max_in_flight() const override { return executor_->max_in_flight(); }
  void submit(const StepPlan& plan) override {
    StepPlan later = plan;
    for (SequenceWork& work : later.ranks.at(0).work) {
      if (!work.wants_token || work.request != first_.value_or(work.request)) continue;
      first_ = work.request;
      if (++num_draws_ < first_drafted_) work.num_tokens_to_draft = 0;
    }
    executor_->submit(later);
  }
  absl::StatusOr<StepResult> collect() override { return executor_->collect(); }
  void describe(EngineState& state) const override { executor_->describe(state); }

 private:
  const std::unique_ptr<Executor> executor_;
  const int64_t first_drafted_;
  std::optional<RequestId> first_;
  int64_t num_draws_ = 0;  // of the first request
};

inline std::unique_ptr<Engine> start_drafting_later(const EngineConfig& config,
                                                    int64_t first_drafted) {
  auto engine = start_engine_with(config, [&](std::unique_ptr<Executor> executor) {
    return std::make_unique<DraftsLater>(std::move(executor), first_drafted);
  });
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

}  // namespace dhs
