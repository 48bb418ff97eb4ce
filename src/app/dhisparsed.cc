// dhisparsed: loads one model and serves it until told to stop.
#include <absl/time/clock.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "app/daemon_options.h"
#include "app/stop_signals.h"
#include "dhisparse/config.h"
#include "dhisparse/config_reloader.h"
#include "dhisparse/engine.h"
#include "dhisparse/monitor.h"
#include "dhisparse/server.h"
#include "dhisparse/tokenizer.h"

namespace dhs {
namespace {

void log_config(const LoadedConfig& loaded) {
  for (const ConfigValue& value : loaded.provenance) {
    if (value.source != "default") {
      log_info("config: ", value.key, ": ", value.value, "  # ", value.source);
    }
  }
}

// Null when the configuration wants none.
absl::StatusOr<std::unique_ptr<Monitor>> monitor_of(const ServerConfig& config) {
  if (config.metrics == "off") return std::unique_ptr<Monitor>();
  DHS_ASSIGN_OR_RETURN(std::unique_ptr<Monitor> monitor,
                       start_monitor(config.metrics, DHS_VERSION));
  log_info("metrics on http://", monitor->address(), "/metrics");
  return monitor;
}

// What the monitor shows while this lives. It must be gone before the engine is.
class Watched {
 public:
  Watched(Monitor* monitor, const Engine& engine, const ConfigReloader& reloader)
      : monitor_(monitor) {
    if (monitor_ != nullptr) monitor_->watch(&engine, &reloader);
  }
  ~Watched() {
    if (monitor_ != nullptr) monitor_->watch(nullptr, nullptr);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  void set_phase(Monitor::Phase phase) {
    if (monitor_ != nullptr) monitor_->set_phase(phase);
  }

 private:
  Monitor* const monitor_;
};

// Serves until a stop signal, then drains. OK when it stopped as it should.
absl::Status serve(const DaemonOptions& options, const LoadedConfig& loaded, StopSignals& signals) {
  const EngineConfig& config = loaded.config;
  DHS_ASSIGN_OR_RETURN(const std::unique_ptr<Monitor> monitor, monitor_of(config.server));
  DHS_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(config.model.path));
  DHS_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, start_engine(config));
  ConfigReloader reloader(options.config_path, options.overrides, loaded, *engine);
  Watched watched(monitor.get(), *engine, reloader);
  DHS_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                       start_server(config.server, config.limits, *engine, tokenizer, &reloader));
  signals.set_ready();
  watched.set_phase(Monitor::Phase::kServing);
  log_info("READY listening on ", server->address(), ", model ", engine->model_info().name);
  while (signals.wait() == StopSignals::Wish::kReload) {
    reloader.reload().IgnoreError();  // it is logged and counted
  }
  watched.set_phase(Monitor::Phase::kDraining);
  const absl::Time deadline = absl::Now() + config.server.drain_timeout;
  server->drain(config.server.drain_timeout);
  engine->drain(std::max(deadline - absl::Now(), absl::ZeroDuration()));
  log_info("stopped");
  return absl::OkStatus();
}

int run_daemon(int argc, const char* const* argv) {
  const ParsedDaemonOptions parsed = parse_daemon_options(argc, argv);
  if (parsed.exit_status) return *parsed.exit_status;
  const DaemonOptions& options = parsed.options;
  const auto loaded = load_config(options.config_path, options.overrides);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", std::string(loaded.status().message()).c_str());
    return 1;
  }
  if (options.print_config) {
    std::fputs(print_config(*loaded).c_str(), stdout);
    return 0;
  }
  if (options.check_config) {
    std::printf("%s: no errors\n", options.config_path.c_str());
    return 0;
  }
  set_log_level(log_level_named(loaded->config.log.level));
  StopSignals signals;
  log_info("dhisparsed " DHS_VERSION);
  log_config(*loaded);
  const absl::Status status = serve(options, *loaded, signals);
  if (status.ok()) return 0;
  log_error(std::string(status.message()));
  return 1;
}

}  // namespace
}  // namespace dhs

int main(int argc, char** argv) { return dhs::run_daemon(argc, argv); }
