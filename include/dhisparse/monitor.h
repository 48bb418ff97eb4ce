// monitor: /metrics, /healthz and /readyz over HTTP, on a port of their own. HTTP and Prometheus
// stay behind this header.
//
//   /metrics  the text format 0.0.4 of Prometheus; every metric is in docs/OPERATIONS.md
//   /healthz  200 as long as the process answers
//   /readyz   200 while requests are served; 503 and the reason while the model loads, during a
//             drain, and once the engine can run no step any more
//
// An answer is made of a copy of what the engine last published: it waits for no step, and a step
// never waits for more than that copy.
#pragma once

#include <absl/status/statusor.h>

#include <memory>
#include <string>

#include "dhisparse/config_reloader.h"
#include "dhisparse/engine.h"

namespace dhs {

class Monitor {
 public:
  enum class Phase { kLoading, kServing, kDraining };

  virtual ~Monitor() = default;  // closes the port, which may take two seconds

  // With the real port when the configured one was 0.
  virtual const std::string& address() const = 0;

  // Loading until told otherwise. Any thread.
  virtual void set_phase(Phase phase) = 0;

  // Figures are those of `engine` and `reloader` (may be null) from here on; nobody's after null.
  // The ones before are not used any more on return. Any thread.
  virtual void watch(const Engine* engine, const ConfigReloader* reloader) = 0;
};

// Listens on `listen`, host:port. version: of the program. UNAVAILABLE: it cannot be bound.
absl::StatusOr<std::unique_ptr<Monitor>> start_monitor(const std::string& listen,
                                                       const std::string& version);

}  // namespace dhs
