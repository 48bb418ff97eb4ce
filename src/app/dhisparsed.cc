// dhisparsed: loads one model and serves it until told to stop.
#include <absl/time/clock.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "app/daemon_options.h"
#include "app/stop_signals.h"
#include "dhisparse/config.h"
#include "dhisparse/engine.h"
#include "dhisparse/server.h"
#include "dhisparse/tokenizer.h"

namespace dhs {
namespace {

LogLevel to_log_level(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

void log_config(const LoadedConfig& loaded) {
  for (const ConfigValue& value : loaded.provenance) {
    if (value.source != "default") {
      log_info("config: ", value.key, ": ", value.value, "  # ", value.source);
    }
  }
}

// Serves until a stop signal, then drains. OK when it stopped as it should.
absl::Status serve(const EngineConfig& config, StopSignals& signals) {
  DHS_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(config.model.path));
  DHS_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, start_engine(config));
  DHS_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                       start_server(config.server, config.limits, *engine, tokenizer));
  signals.set_ready();
  log_info("READY listening on ", server->address(), ", model ", engine->model_info().name);
  signals.wait();
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
  set_log_level(to_log_level(loaded->config.log.level));
  StopSignals signals;
  log_info("dhisparsed " DHS_VERSION);
  log_config(*loaded);
  const absl::Status status = serve(loaded->config, signals);
  if (status.ok()) return 0;
  log_error(std::string(status.message()));
  return 1;
}

}  // namespace
}  // namespace dhs

int main(int argc, char** argv) { return dhs::run_daemon(argc, argv); }
