#include "dhisparse/config_reloader.h"

#include <absl/strings/str_join.h>

#include <algorithm>
#include <utility>

namespace dhs {
namespace {

std::string line_of(const ConfigChange& change) {
  return absl::StrCat(change.key, ": ", change.before, " -> ", change.after);
}

absl::Status check_all_live(const std::vector<ConfigChange>& changes) {
  std::vector<std::string> others;
  for (const ConfigChange& change : changes) {
    if (!change.is_live) others.push_back(line_of(change));
  }
  if (others.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("nothing was changed: this needs a restart: ", absl::StrJoin(others, "; ")));
}

}  // namespace

ConfigReloader::ConfigReloader(std::string path, std::vector<std::string> overrides,
                               LoadedConfig loaded, Engine& engine)
    : path_(std::move(path)),
      overrides_(std::move(overrides)),
      engine_(engine),
      loaded_(std::move(loaded)) {}

absl::StatusOr<std::vector<ConfigChange>> ConfigReloader::reload() {
  MutexLock one_at_a_time(reload_mutex_);
  auto changes = try_reload();
  if (!changes.ok()) {
    log_error("reload: the old configuration stays in force: ", changes.status().message());
  }
  MutexLock lock(mutex_);
  counts_.is_last_successful = changes.ok();
  if (changes.ok()) {
    ++counts_.succeeded;
    counts_.last_success = absl::Now();
  } else {
    ++counts_.failed;
  }
  return changes;
}

absl::StatusOr<std::vector<ConfigChange>> ConfigReloader::try_reload() {
  DHS_ASSIGN_OR_RETURN(LoadedConfig next, load_config(path_, overrides_));
  const std::vector<ConfigChange> changes = config_changes(loaded_, next);
  DHS_RETURN_IF_ERROR(check_all_live(changes));
  DHS_RETURN_IF_ERROR(engine_.reconfigure(next.config.residency, next.config.scheduler));
  const LogLevel before = log_level_named(loaded_.config.log.level);
  const LogLevel after = log_level_named(next.config.log.level);
  loaded_ = std::move(next);
  set_log_level(std::min(before, after));  // so that a change of the level is seen either way
  for (const ConfigChange& change : changes) log_info("reload: ", line_of(change));
  if (changes.empty()) log_info("reload: nothing has changed");
  set_log_level(after);
  return changes;
}

ReloadCounts ConfigReloader::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

}  // namespace dhs
