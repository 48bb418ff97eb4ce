// What carries a StepPlan out: a model on a device, or (later) a cost model on a virtual clock.
#pragma once

#include <absl/status/statusor.h>

#include "dhisparse/engine.h"
#include "dhisparse/scheduler.h"

namespace dhs {

class Executor {
 public:
  virtual ~Executor() = default;

  // Steps that may be queued before the oldest is collected: 1, or 2 where the device works on one
  // while the host prepares the next.
  virtual int max_in_flight() const { return 1; }

  // Queues the plan: its memory changes, its rows, its draws. A row of the plan may wait for a draw
  // of the step before (SequenceWork::previous_draw). Reads the plan's spans before it returns, not
  // after.
  // Precondition: fewer than max_in_flight() steps are queued.
  virtual void submit(const StepPlan& plan) = 0;

  // The result of the oldest queued step, once it is done. An error means that no token was drawn:
  // the requests of the plan are lost, the engine is not, unless it is ABORTED: then every later
  // step fails too. The memory changes have been applied all the same, since the accounting has
  // moved on.
  virtual absl::StatusOr<StepResult> collect() = 0;

  // Adds what only the executor knows: device, row caches.
  virtual void describe(EngineState& state) const = 0;
};

}  // namespace dhs
