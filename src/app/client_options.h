// The command line of dhisparse.
#pragma once

#include <absl/time/time.h>

#include <optional>
#include <string>
#include <vector>

#include "dhisparse/client.h"

namespace dhs {

enum class ClientCommand { kGenerate, kState, kReload, kPlan, kTokenize, kDetokenize, kSimulate };

struct ClientOptions {
  ClientCommand command = ClientCommand::kGenerate;
  std::string server;
  bool json = false;
  absl::Duration timeout = absl::InfiniteDuration();
  std::optional<absl::Duration> watch;  // state: again and again, at this interval
  // plan, simulate: of no server.
  std::string config_path;
  std::vector<std::string> config_paths;  // simulate: later ones win
  std::vector<std::string> overrides;
  // generate: without the prompt; exactly one of the three below is given (tokenize, detokenize:
  // one of those that make sense).
  ClientRequest request;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;  // "-": standard input
  std::vector<uint32_t> token_ids;
};

// What to do: run with `options`, or (after --help, --version or a usage error) exit with a status.
struct ParsedClientOptions {
  ClientOptions options;
  std::optional<int> exit_status;  // 0, or 2 after a usage error
};

ParsedClientOptions parse_client_options(int argc, const char* const* argv);

}  // namespace dhs
