// What carries a StepPlan out: a model on a device, or (later) a cost model on a virtual clock.
#pragma once

#include <absl/status/statusor.h>

#include "dhisparse/engine.h"
#include "dhisparse/scheduler.h"

namespace dhs {

class Executor {
 public:
  virtual ~Executor() = default;

  // Applies the plan's memory changes, computes its rows and draws its tokens. An error means that
  // no token was drawn: the requests of the plan are lost, the engine is not. The memory changes
  // must have been applied all the same, since the accounting has moved on.
  virtual absl::StatusOr<StepResult> execute(const StepPlan& plan) = 0;

  // Adds what only the executor knows: device, row caches.
  virtual void describe(EngineState& state) const = 0;
};

}  // namespace dhs
