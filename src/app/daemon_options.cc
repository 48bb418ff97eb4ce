#include "app/daemon_options.h"

#include <CLI/CLI.hpp>

namespace dhs {

ParsedDaemonOptions parse_daemon_options(int argc, const char* const* argv) {
  CLI::App app("DHiSparse inference daemon", "dhisparsed");
  ParsedDaemonOptions parsed;
  DaemonOptions& options = parsed.options;
  app.set_version_flag("--version", "dhisparsed " DHS_VERSION);
  app.add_option("--config", options.config_path, "YAML configuration file")->required();
  app.add_option("--set", options.overrides, "Override a key of the file: --set section.key=value")
      ->allow_extra_args(false);
  auto* check = app.add_flag("--check-config", options.check_config,
                             "Report every error of the configuration and exit");
  app.add_flag("--print-config", options.print_config,
               "Print every key with its value and where that came from, and exit")
      ->excludes(check);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = app.exit(error) == 0 ? 0 : 2;
  }
  return parsed;
}

}  // namespace dhs
