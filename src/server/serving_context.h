// What the services share.
#pragma once

#include "dhisparse/config.h"
#include "dhisparse/config_reloader.h"
#include "dhisparse/engine.h"
#include "dhisparse/tokenizer.h"
#include "server/byte_budget.h"
#include "server/call_registry.h"
#include "server/validate_request.h"
#include "server/worker_pool.h"

namespace dhs {

struct ServingContext {
  static constexpr int kNumWorkers = 4;
  static constexpr size_t kMaxNumQueuedJobs = 1024;

  ServingContext(const LimitsConfig& limits_in, Engine& engine_in, const Tokenizer& tokenizer_in,
                 ConfigReloader* reloader_in)
      : limits(limits_in),
        engine(engine_in),
        tokenizer(tokenizer_in),
        reloader(reloader_in),
        arriving(limits_in.max_arriving_bytes) {}

  RequestRules rules() const { return {limits, engine.model_info(), tokenizer}; }

  const LimitsConfig limits;
  Engine& engine;
  const Tokenizer& tokenizer;
  ConfigReloader* const reloader;  // may be null
  CallRegistry calls;
  ByteBudget arriving;  // requests that the workers have not read yet; outlives the workers
  WorkerPool workers{kNumWorkers, kMaxNumQueuedJobs};
};

}  // namespace dhs
