// Runs steps on several ranks at once, each on a thread of its own, in lock step: the ranks meet in
// every layer, so none is ever ahead of another.
//
// tensor: every rank carries out the plan's one part and ends with the same bits, so the first one
// answers. data: every rank carries out its own part, with no rows when it has none, and answers
// for it.
//
// A rank whose exchanges fail ends the group, so that no other waits for it; every later step
// fails with the reason.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <vector>

#include "dhisparse/communicator.h"
#include "dhisparse/device.h"
#include "engine/engine_plan.h"
#include "engine/executor.h"
#include "engine/model_executor.h"
#include "engine/rank_threads.h"

namespace dhs {

class RanksExecutor final : public Executor {
 public:
  // Loads the model on every rank's device; of several errors, the first rank's.
  static absl::StatusOr<std::unique_ptr<RanksExecutor>> create(
      std::vector<std::unique_ptr<Device>> devices,
      std::vector<std::unique_ptr<Communicator>> communicators, const EngineConfig& config,
      const EnginePlan& plan);
  ~RanksExecutor() override;

  int max_in_flight() const override { return ranks_.front().executor->max_in_flight(); }
  void submit(const StepPlan& plan) override;
  absl::StatusOr<StepResult> collect() override;
  // Row caches: of one rank in tensor mode, where all are equal; of all together in data mode.
  void describe(EngineState& state) const override;

  // For tests.
  ModelExecutor& rank(int rank) { return *ranks_[rank].executor; }
  Communicator& communicator(int rank) { return *ranks_[rank].communicator; }

 private:
  struct Rank {
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<ModelExecutor> executor;  // goes first
  };

  RanksExecutor(std::vector<std::unique_ptr<Communicator>> communicators, ParallelMode mode);

  const ParallelMode mode_;
  std::vector<Rank> ranks_;
  RankThreads threads_;
};

}  // namespace dhs
