// The command line of dhisparsed.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dhs {

struct DaemonOptions {
  std::string config_path;
  std::vector<std::string> overrides;  // "section.key=value"
  bool check_config = false;
  bool print_config = false;
};

// What to do: run with `options`, or (after --help, --version or a usage error) exit with a status.
struct ParsedDaemonOptions {
  DaemonOptions options;
  std::optional<int> exit_status;  // 0, or 2 after a usage error
};

ParsedDaemonOptions parse_daemon_options(int argc, const char* const* argv);

}  // namespace dhs
