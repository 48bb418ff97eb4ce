#include "app/client_options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dhs {
namespace {

constexpr double kMaxTimeoutSeconds = 1e9;
constexpr double kWatchSeconds = 1;
constexpr double kLeastWatchSeconds = 0.05;

void add_connection(CLI::App& command, ClientOptions& options) {
  command.add_option("--server", options.server, "HOST:PORT of the daemon")->required();
  command
      .add_option_function<double>(
          "--timeout", [&](double seconds) { options.timeout = absl::Seconds(seconds); },
          "Give up after this many seconds (default: never)")
      ->check(CLI::Range(0.0, kMaxTimeoutSeconds));
  command.add_flag("--json", options.json, "Print one JSON object");
}

void add_text_prompt(CLI::Option_group& group, ClientOptions& options) {
  group.add_option("--prompt", options.prompt, "Text (--prompt=TEXT when it starts with a dash)");
  group.add_option("--prompt-file", options.prompt_file,
                   "File whose whole content is the text; - is standard input");
}

void add_token_ids(CLI::Option_group& group, ClientOptions& options) {
  group.add_option("--token-ids", options.token_ids, "Token ids: 1,2,3")
      ->delimiter(',')
      ->allow_extra_args(false);
}

// Whether every text is TOKEN=BIAS.
bool read_biases(const std::vector<std::string>& given,
                 std::vector<std::pair<uint32_t, float>>& biases) {
  for (const std::string& text : given) {
    std::pair<uint32_t, float> read;
    const char* const end = text.data() + text.size();
    const auto token = std::from_chars(text.data(), end, read.first);
    if (token.ec != std::errc() || token.ptr == end || *token.ptr != '=') return false;
    const auto bias = std::from_chars(token.ptr + 1, end, read.second);
    if (bias.ec != std::errc() || bias.ptr != end) return false;
    biases.push_back(read);
  }
  return true;
}

void add_sampling(CLI::App& command, ClientRequest& request) {
  command.add_option("--max-tokens", request.max_tokens,
                     "Most tokens to generate (default: the rest of the context)");
  command.add_option("--min-tokens", request.min_tokens,
                     "No end of sequence and no stop token before this many");
  command.add_option("--temperature", request.temperature, "0: greedy (default: 1)");
  command.add_option("--top-p", request.top_p, "Above 0, at most 1 (default: 1)");
  command.add_option("--top-k", request.top_k, "0: off (default)");
  command.add_option("--min-p", request.min_p, "0 to 1 (default: 0)");
  command.add_option("--repetition-penalty", request.repetition_penalty,
                     "Above 0, at most 10 (default: 1)");
  command.add_option("--presence-penalty", request.presence_penalty, "-2 to 2 (default: 0)");
  command.add_option("--frequency-penalty", request.frequency_penalty, "-2 to 2 (default: 0)");
  constexpr int kMostBiases = 1024;
  command
      .add_option(
          "--logit-bias",
          [&request](const CLI::results_t& given) {
            return read_biases(given, request.logit_bias);
          },
          "-100 to 100, added to the logit of a token; may be repeated")
      ->type_name("TOKEN=BIAS")
      ->expected(1, kMostBiases)
      ->allow_extra_args(false);
  command.add_option("--seed", request.seed, "Same seed, same tokens (default: drawn)");
  command.add_option("--stop", request.stop, "End where this text appears; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--stop-token-id", request.stop_token_ids, "End with this token; may be repeated")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", request.ignore_eos, "Go on after the model's end token");
}

void add_scheduling(CLI::App& command, ClientRequest& request) {
  command.add_option("--priority", request.priority, "Higher runs first (default: 0)");
  command.add_option("--cache-salt", request.cache_salt,
                     "Share the prefix cache with equal salts only");
  command.add_flag("--bypass-prefix-cache", request.bypass_prefix_cache,
                   "Take nothing from the prefix cache and leave nothing in it");
}

void add_output(CLI::App& command, ClientRequest& request) {
  command.add_flag("--include-stop", request.include_stop_str_in_output,
                   "The stop string is part of the text");
  command.add_flag_callback(
      "--show-special", [&request] { request.skip_special_tokens = false; },
      "Special tokens are part of the text");
  command.add_flag("--logprobs", request.logprobs, "Log-probability of each token (with --json)");
  command.add_option("--top-logprobs", request.top_logprobs,
                     "And of this many most likely tokens (with --json)");
  command.add_option("--request-id", request.request_id, "Echoed by the server");
}

void add_generate(CLI::App& app, ClientOptions& options) {
  CLI::App& command = *app.add_subcommand("generate", "Generate text; it is printed as it arrives");
  add_connection(command, options);
  CLI::Option_group& prompt = *command.add_option_group("prompt", "Exactly one of");
  prompt.require_option(1);
  add_text_prompt(prompt, options);
  add_token_ids(prompt, options);
  add_sampling(command, options.request);
  add_scheduling(command, options.request);
  add_output(command, options.request);
  command.final_callback([&] { options.command = ClientCommand::kGenerate; });
}

void add_state(CLI::App& app, ClientOptions& options) {
  CLI::App& state = *app.add_subcommand("state", "Requests, memory tiers and index groups");
  add_connection(state, options);
  state
      .add_option_function<std::vector<double>>(
          "--watch",
          [&](const std::vector<double>& seconds) {
            options.watch = absl::Seconds(seconds.empty() ? kWatchSeconds : seconds.front());
          },
          "Show it again every so many seconds (default: 1), until interrupted")
      ->expected(0, 1)
      ->check(CLI::Range(kLeastWatchSeconds, kMaxTimeoutSeconds));
  state.final_callback([&] { options.command = ClientCommand::kState; });
}

void add_plan(CLI::App& app, ClientOptions& options) {
  CLI::App& plan = *app.add_subcommand(
      "plan", "How many requests a configuration holds at once; needs no daemon");
  plan.add_option("--config", options.config_path, "YAML configuration file")->required();
  plan.add_option("--set", options.overrides, "Override a key of the file: --set section.key=value")
      ->allow_extra_args(false);
  plan.add_flag("--json", options.json, "Print one JSON object");
  plan.final_callback([&] { options.command = ClientCommand::kPlan; });
}

void add_queries(CLI::App& app, ClientOptions& options) {
  CLI::App& reload =
      *app.add_subcommand("reload", "Have the daemon read its configuration file again");
  add_connection(reload, options);
  reload.final_callback([&] { options.command = ClientCommand::kReload; });

  CLI::App& tokenize = *app.add_subcommand("tokenize", "Text to token ids");
  add_connection(tokenize, options);
  CLI::Option_group& text = *tokenize.add_option_group("prompt", "Exactly one of");
  text.require_option(1);
  add_text_prompt(text, options);
  tokenize.final_callback([&] { options.command = ClientCommand::kTokenize; });

  CLI::App& detokenize = *app.add_subcommand("detokenize", "Token ids to text");
  add_connection(detokenize, options);
  CLI::Option_group& ids = *detokenize.add_option_group("tokens");
  ids.require_option(1);
  add_token_ids(ids, options);
  detokenize.final_callback([&] { options.command = ClientCommand::kDetokenize; });
}

void add_simulate(CLI::App& app, ClientOptions& options) {
  CLI::App& command = *app.add_subcommand(
      "simulate", "What a deployment would do: real scheduler and memory, simulated time");
  command
      .add_option("--config", options.config_paths,
                  "Simulation file; may be repeated, later ones win")
      ->required()
      ->allow_extra_args(false);
  command.add_option("--set", options.overrides, "section.key=value; may be repeated")
      ->allow_extra_args(false);
  command.add_flag("--json", options.json, "Print one JSON object");
  command.final_callback([&] { options.command = ClientCommand::kSimulate; });
}

}  // namespace

ParsedClientOptions parse_client_options(int argc, const char* const* argv) {
  CLI::App app("DHiSparse client and operator tool", "dhisparse");
  ParsedClientOptions parsed;
  app.set_version_flag("--version", "dhisparse " DHS_VERSION);
  app.require_subcommand(1);
  add_generate(app, parsed.options);
  add_state(app, parsed.options);
  add_plan(app, parsed.options);
  add_queries(app, parsed.options);
  add_simulate(app, parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = app.exit(error) == 0 ? 0 : 2;
  }
  parsed.options.request.timeout = parsed.options.timeout;
  return parsed;
}

}  // namespace dhs
