// start_engine() for benches and tests, which put something of their own around the executor.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>

#include "dhisparse/engine.h"
#include "engine/executor.h"

namespace dhs {

using WrapExecutor = std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)>;
absl::StatusOr<std::unique_ptr<Engine>> start_engine_with(const EngineConfig& config,
                                                          const WrapExecutor& wrap);

}  // namespace dhs
