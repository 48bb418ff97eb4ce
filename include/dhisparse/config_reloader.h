// config_reloader: reads the configuration again while the engine runs, and has it take over what
// can change live: the sections residency, scheduler and log.
//
// All or nothing: a file with a mistake, or a change that needs a restart, changes nothing.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/clock.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dhisparse/config.h"
#include "dhisparse/engine.h"
#include "dhisparse/sync.h"

namespace dhs {

struct ReloadCounts {  // since start
  int64_t succeeded = 0;
  int64_t failed = 0;
  bool is_last_successful = true;         // the configuration that was last asked for is in force
  absl::Time last_success = absl::Now();  // the start is one
};

// Any thread may call anything; one reload at a time.
class ConfigReloader {
 public:
  // loaded: what `path` and `overrides` said at start. The engine must outlive it.
  ConfigReloader(std::string path, std::vector<std::string> overrides, LoadedConfig loaded,
                 Engine& engine);

  // Returns what changed, and logs a line for each; an error is logged too. INVALID_ARGUMENT and
  // NOT_FOUND as load_config. FAILED_PRECONDITION names the keys that need a restart.
  absl::StatusOr<std::vector<ConfigChange>> reload();

  ReloadCounts counts() const;

 private:
  absl::StatusOr<std::vector<ConfigChange>> try_reload() DHS_REQUIRES(reload_mutex_);

  const std::string path_;
  const std::vector<std::string> overrides_;
  Engine& engine_;
  Mutex reload_mutex_;
  LoadedConfig loaded_ DHS_GUARDED_BY(reload_mutex_);  // in force
  mutable Mutex mutex_;
  ReloadCounts counts_ DHS_GUARDED_BY(mutex_);
};

}  // namespace dhs
