// dhisparse: client and operator tool.
//
// Exit status: 0 done, 1 failed (the reason is on standard error), 2 wrong usage.
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/time/clock.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "app/client_json.h"
#include "app/client_options.h"
#include "app/plan_table.h"
#include "app/state_table.h"
#include "dhisparse/capacity_plan.h"
#include "dhisparse/client.h"
#include "dhisparse/config.h"
#include "dhisparse/sim.h"

namespace dhs {
namespace {

absl::StatusOr<std::string> read_all(const std::string& path) {
  const bool is_stdin = path == "-";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(
      is_stdin ? nullptr : std::fopen(path.c_str(), "rb"), &std::fclose);
  std::FILE* file = is_stdin ? stdin : opened.get();
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  std::string content;
  char buffer[1 << 16];
  while (const size_t num_bytes = std::fread(buffer, 1, sizeof(buffer), file)) {
    content.append(buffer, num_bytes);
  }
  if (std::ferror(file) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read; name a file"));
  }
  return content;
}

absl::StatusOr<std::string> prompt_text(const ClientOptions& options) {
  if (options.prompt_file) return read_all(*options.prompt_file);
  return options.prompt.value_or("");
}

// False when standard output takes no more.
bool write_out(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

absl::Status print(const std::string& text) {
  if (write_out(text)) return absl::OkStatus();
  return absl::DataLossError("standard output cannot be written");
}

void print_summary(const ClientOutput& output) {
  const auto ms = [](const std::optional<double>& seconds) {
    return seconds ? absl::StrFormat("%.1f ms", *seconds * 1e3) : std::string("-");
  };
  const std::optional<double> per_token = output.time_per_output_token_s;
  const std::string rate =
      per_token && *per_token > 0 ? absl::StrFormat("%.1f", 1.0 / *per_token) : std::string("-");
  std::fprintf(stderr,
               "[%lld prompt tokens, %lld tokens, finish reason %s, first token after %s, "
               "%s tokens/s]\n",
               static_cast<long long>(output.usage.prompt_tokens),
               static_cast<long long>(output.usage.completion_tokens),
               output.reason == FinishReason::kLength ? "length" : "stop",
               ms(output.time_to_first_token_s).c_str(), rate.c_str());
}

absl::Status run_generate(const ClientOptions& options, Client& client) {
  ClientRequest request = options.request;
  if (options.token_ids.empty()) {
    DHS_ASSIGN_OR_RETURN(request.prompt, prompt_text(options));
  } else {
    request.prompt = options.token_ids;
  }
  const Client::OnText on_text = options.json ? Client::OnText() : Client::OnText(write_out);
  DHS_ASSIGN_OR_RETURN(const ClientOutput output, client.generate(request, on_text));
  if (options.json) {
    return print(generate_json(output, request.logprobs || request.top_logprobs > 0) + "\n");
  }
  DHS_RETURN_IF_ERROR(print("\n"));
  print_summary(output);
  return absl::OkStatus();
}

// Clears a terminal and begins at its top.
constexpr char kRedraw[] = "\x1b[H\x1b[2J";

absl::Status run_state(const ClientOptions& options, Client& client) {
  const bool redraws = options.watch && !options.json && isatty(STDOUT_FILENO) == 1;
  while (true) {
    DHS_ASSIGN_OR_RETURN(const ServerState state, client.state(options.timeout));
    const std::string text = options.json ? state_json(state) + "\n" : state_table(state);
    if (!options.watch) return print(text);
    // Elsewhere than on a terminal an empty line separates one table from the next.
    DHS_RETURN_IF_ERROR(print(redraws ? kRedraw + text : options.json ? text : text + "\n"));
    absl::SleepFor(*options.watch);
  }
}

absl::Status run_reload(const ClientOptions& options, Client& client) {
  DHS_ASSIGN_OR_RETURN(const auto changes, client.reload(options.timeout));
  if (options.json) return print(reload_json(changes) + "\n");
  if (changes.empty()) return print("nothing has changed\n");
  std::string text;
  for (const ConfigChange& change : changes) {
    absl::StrAppend(&text, change.key, ": ", change.before, " -> ", change.after, "\n");
  }
  return print(text);
}

absl::Status run_plan(const ClientOptions& options) {
  DHS_ASSIGN_OR_RETURN(const LoadedConfig loaded,
                       load_config(options.config_path, options.overrides));
  DHS_ASSIGN_OR_RETURN(const CapacityPlan plan, plan_capacity(loaded.config));
  return print(options.json ? plan_json(plan) + "\n" : plan_table(plan));
}

absl::Status run_tokenize(const ClientOptions& options, Client& client) {
  DHS_ASSIGN_OR_RETURN(const std::string text, prompt_text(options));
  DHS_ASSIGN_OR_RETURN(const auto token_ids, client.tokenize(text, options.timeout));
  return print((options.json ? tokenize_json(token_ids) : absl::StrJoin(token_ids, ",")) + "\n");
}

absl::Status run_detokenize(const ClientOptions& options, Client& client) {
  DHS_ASSIGN_OR_RETURN(const std::string text,
                       client.detokenize(options.token_ids, options.timeout));
  return print((options.json ? detokenize_json(text) : text) + "\n");
}

absl::Status run_simulate(const ClientOptions& options) {
  DHS_ASSIGN_OR_RETURN(const LoadedSimConfig loaded,
                       load_sim_config(options.config_paths, options.overrides));
  DHS_RETURN_IF_ERROR(validate(loaded.config));
  const SimReport report = run_simulation(loaded.config);
  return print(options.json ? report_json(report) + "\n" : report_text(report));
}

absl::Status run(const ClientOptions& options) {
  if (options.command == ClientCommand::kPlan) return run_plan(options);
  if (options.command == ClientCommand::kSimulate) return run_simulate(options);
  const std::unique_ptr<Client> client = make_client(options.server);
  switch (options.command) {
    case ClientCommand::kGenerate:
      return run_generate(options, *client);
    case ClientCommand::kState:
      return run_state(options, *client);
    case ClientCommand::kReload:
      return run_reload(options, *client);
    case ClientCommand::kPlan:
      break;
    case ClientCommand::kTokenize:
      return run_tokenize(options, *client);
    case ClientCommand::kDetokenize:
      return run_detokenize(options, *client);
    case ClientCommand::kSimulate:
      break;
  }
  return absl::OkStatus();
}

int run_client(int argc, const char* const* argv) {
  const ParsedClientOptions parsed = parse_client_options(argc, argv);
  if (parsed.exit_status) return *parsed.exit_status;
  const absl::Status status = run(parsed.options);
  if (status.ok()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "dhisparse: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace dhs

int main(int argc, char** argv) { return dhs::run_client(argc, argv); }
