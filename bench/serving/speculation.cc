// What drafts are worth: output, accepted length, verify rows and host fetches of every draft and
// length at several concurrencies, on one engine for each. The lengths of a draft and no draft are
// measured in turns of a quarter of a second.
//
//   speculation MODEL_DIR DRAFTS_DIR FOLDER [--quick] [--rounds N]
//
// Writes FOLDER/speculation.json, to which speculation_report.py adds the summary. Ends with 1 when
// a greedy output depends on the draft. The link between the tiers is emulated.
#include <absl/strings/numbers.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "decode_window.h"
#include "draft_variants.h"

namespace dhs::bench {
namespace {

constexpr int kNumPrompts = 16;
constexpr int64_t kLinkBandwidth = 190'000'000;

struct Phase {
  int concurrency;
  float temperature;
  int64_t tokens_each;
  int rounds;
};

struct Plan {
  std::vector<DraftVariant> variants;
  std::vector<Phase> phases;
  int64_t prompt_tokens = 1536;
  int64_t device_bytes = int64_t{76} << 20;
  double turn_s = 0.25;
  double settle_s = 12;  // that an adaptive length decodes unmeasured, where a phase begins
};

Plan full_plan(const std::string& drafts_dir) {
  Plan plan;
  plan.variants.push_back(without_draft());
  for (const char* draft : {"dflash2", "dspark", "mtp", "ngram"}) {
    const std::vector<DraftVariant> more = variants_of(draft, drafts_dir, 2);
    plan.variants.insert(plan.variants.end(), more.begin(), more.end());
  }
  plan.phases = {{4, 0, 256, 6}, {16, 0, 128, 8}, {1, 0, 512, 8}, {4, 1, 256, 3}};
  return plan;
}

Plan quick_plan(const std::string& drafts_dir) {
  Plan plan;
  plan.variants.push_back(without_draft());
  for (const char* draft : {"dflash2", "ngram"}) {
    const std::vector<DraftVariant> more = variants_of(draft, drafts_dir, 0);
    plan.variants.insert(plan.variants.end(), more.begin(), more.end());
  }
  plan.phases = {{1, 0, 32, 1}, {4, 0, 24, 1}, {4, 1, 24, 1}};
  plan.prompt_tokens = 320;
  plan.device_bytes = int64_t{8} << 20;
  plan.turn_s = 0.02;
  plan.settle_s = 0;
  return plan;
}

EngineConfig make_config(const std::string& model_dir, const Plan& plan, const DraftConfig& draft) {
  EngineConfig config;
  config.model.path = model_dir;
  config.model.name = "demo";
  config.draft = draft;
  // Two that wait for each other would measure what else the machine does.
  config.device.num_threads = 1;
  config.device.chunk_bytes = int64_t{128} << 10;
  config.device.memory_bytes = plan.device_bytes;
  config.device.emulate_link = true;
  config.device.link_bandwidth = kLinkBandwidth;
  config.host.pool_bytes = int64_t{256} << 20;
  config.residency.mode = ResidencyMode::kAdaptive;
  config.scheduler.max_running = kNumPrompts;
  return config;
}

// Compares what the same prompt gave before, token by token as far as both go.
class GreedyOutputs {
 public:
  void add(const std::string& name, size_t prompt, const std::vector<TokenId>& tokens) {
    std::vector<TokenId>& known = longest_[prompt];
    const auto common = std::min(known.size(), tokens.size());
    const auto differs = std::mismatch(known.begin(), known.begin() + common, tokens.begin()).first;
    const auto position = differs - known.begin();
    if (position < std::ssize(known) && position < std::ssize(tokens)) {
      std::fprintf(stderr, "%s: prompt %zu differs from token %ld on\n", name.c_str(), prompt,
                   position);
      all_equal_ = false;
    }
    if (tokens.size() > known.size()) known = tokens;
  }
  bool all_equal() const { return all_equal_; }

 private:
  std::map<size_t, std::vector<TokenId>> longest_;
  bool all_equal_ = true;
};

// Of the machine, over the last minute: what else it did while it measured.
double load_average() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? average : -1;
}

std::string run_json(const DraftVariant& variant, const std::string& beside, const Phase& phase,
                     int round, const DecodeWindow& window) {
  return absl::StrFormat(
      "{\"draft\": \"%s\", \"length\": \"%s\", \"beside\": \"%s\", "
      "\"concurrency\": %d, \"temperature\": %g, "
      "\"round\": %d, \"seconds\": %.4f, \"running\": %d, \"steps\": %d, \"tokens\": %d, "
      "\"draws_with_drafts\": %d, \"drafts_verified\": %d, \"drafts_accepted\": %d, "
      "\"verified_at\": [%s], \"accepted_at\": [%s], \"draft_cap\": %d, \"rows_needed\": %d, "
      "\"rows_fetched\": %d, \"fetched_bytes\": %d}",
      variant.draft, variant.length, beside, phase.concurrency, phase.temperature, round,
      window.seconds, window.running, window.steps, window.tokens, window.draws_with_drafts,
      window.drafts_verified, window.drafts_accepted, absl::StrJoin(window.verified_at, ", "),
      absl::StrJoin(window.accepted_at, ", "), window.draft_cap, window.rows_needed,
      window.rows_fetched, window.fetched_bytes);
}

class Bench {
 public:
  Bench(const std::string& model_dir, Plan plan) : plan_(std::move(plan)) {
    const std::vector<TokenId> text = held_out_tokens(model_dir);
    for (int i = 0; i < kNumPrompts; ++i) {
      prompts_.push_back(window(text, i * std::ssize(text) / kNumPrompts, plan_.prompt_tokens));
    }
    for (const DraftVariant& variant : plan_.variants) {
      engines_.push_back(start_gated_engine(make_config(model_dir, plan_, variant.config)));
    }
    for (size_t i = 1; i < plan_.variants.size(); ++i) {
      if (plan_.variants[i].draft != plan_.variants[i - 1].draft) groups_.push_back({0});
      groups_.back().push_back(i);
    }
  }

  // Writes what there is after every phase.
  void run(const std::string& path) {
    load_averages_.push_back(load_average());
    for (const Phase& phase : plan_.phases) {
      for (size_t i = 0; i < engines_.size(); ++i) settle(i, phase);
      for (int round = 0; round < phase.rounds; ++round) run_round(phase, round);
      load_averages_.push_back(load_average());
      write(path);
    }
    for (const GatedEngine& each : engines_) each.engine->drain(absl::ZeroDuration());
  }

  bool all_equal() const { return greedy_.all_equal(); }

 private:
  void write(const std::string& path) const {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) die(absl::NotFoundError(path + " cannot be written"));
    std::fputs(json().c_str(), file);
    std::fclose(file);
  }

  std::string json() const {
    const EngineState state = engines_.front().engine->state();
    return absl::StrFormat(
        "{\"setup\": {\"simulated\": false, \"device\": \"%s\", \"model\": \"%s\", \"link\": "
        "\"emulated\", \"link_bytes_per_s\": %d, \"device_pool_bytes\": %d, \"chunk_bytes\": %d, "
        "\"host_pool_bytes\": %d, \"prompts\": %d, \"prompt_tokens\": %d, "
        "\"load_averages\": [%s], \"greedy_outputs_equal\": %s},\n\"runs\": [\n%s\n]}\n",
        state.device, state.model_name, kLinkBandwidth, state.device_pool_bytes, state.chunk_bytes,
        state.host_pool_bytes, kNumPrompts, plan_.prompt_tokens,
        absl::StrJoin(load_averages_, ", "), all_equal() ? "true" : "false",
        absl::StrJoin(runs_, ",\n"));
  }

  // An adaptive length comes to where it stays. On the first prompts only: those of later rounds
  // are as new to it as to the others.
  void settle(size_t engine, const Phase& phase) {
    const bool is_adaptive = plan_.variants[engine].is_adaptive();
    double decoded_s = 0;
    do {
      decoded_s += decode({engine}, phase, 0).front().seconds;
    } while (is_adaptive && decoded_s < plan_.settle_s);
  }

  // What is compared is measured beside each other: the lengths of a draft, and no draft. Each
  // begins in turn.
  void run_round(const Phase& phase, int round) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::vector<size_t> group = groups_[g];
      const size_t beside = group.back();
      std::rotate(group.begin(), group.begin() + round % std::ssize(group), group.end());
      // No prompts come again soon, neither with a draft nor without.
      const auto windows = decode(group, phase, 5 * round + static_cast<int>(g));
      for (size_t i = 0; i < group.size(); ++i) report(group[i], beside, phase, round, windows[i]);
    }
  }

  void report(size_t engine, size_t beside, const Phase& phase, int round,
              const DecodeWindow& window) {
    const DraftVariant& variant = plan_.variants[engine];
    runs_.push_back(run_json(variant, plan_.variants[beside].draft, phase, round, window));
    std::printf("%-8s %-5s x%-3d t %g round %d: %7.1f tokens/s, %.2f tokens a verify step\n",
                variant.draft.c_str(), variant.length.c_str(), phase.concurrency, phase.temperature,
                round, static_cast<double>(window.tokens) / window.seconds,
                1 + static_cast<double>(window.drafts_accepted) /
                        static_cast<double>(std::max<int64_t>(1, window.draws_with_drafts)));
    std::fflush(stdout);
  }

  std::vector<DecodeWindow> decode(const std::vector<size_t>& engines, const Phase& phase,
                                   int prompts) {
    const int first = prompts * phase.concurrency % kNumPrompts;
    std::vector<GatedEngine*> gated;
    for (size_t engine : engines) gated.push_back(&engines_[engine]);
    std::vector<DecodeWindow> windows = measure_in_turns(gated, prompts_,
                                                         {.concurrency = phase.concurrency,
                                                          .temperature = phase.temperature,
                                                          .tokens_each = phase.tokens_each,
                                                          .turn_s = plan_.turn_s,
                                                          .first_prompt = first});
    if (phase.temperature > 0) return windows;
    for (size_t i = 0; i < windows.size(); ++i) {
      const DraftVariant& variant = plan_.variants[engines[i]];
      add_outputs(variant.draft + " " + variant.length, first, windows[i].outputs);
    }
    return windows;
  }

  void add_outputs(const std::string& name, int first,
                   const std::vector<std::vector<TokenId>>& outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      greedy_.add(name, (first + i) % kNumPrompts, outputs[i]);
    }
  }

  const Plan plan_;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<GatedEngine> engines_;         // by variant
  std::vector<std::vector<size_t>> groups_;  // engines: without a draft, then all of one draft
  std::vector<std::string> runs_;
  std::vector<double> load_averages_;
  GreedyOutputs greedy_;
};

int run(const std::string& model_dir, Plan plan, const std::string& folder) {
  Bench bench(model_dir, std::move(plan));
  bench.run(folder + "/speculation.json");
  return bench.all_equal() ? 0 : 1;
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  using namespace dhs::bench;
  std::vector<std::string> paths;
  bool is_quick = false;
  int rounds = 0;
  bool is_understood = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      is_quick = true;
    } else if (word == "--rounds" && i + 1 < argc) {
      is_understood = absl::SimpleAtoi(argv[++i], &rounds) && rounds > 0;
    } else {
      paths.push_back(word);
    }
  }
  if (paths.size() != 3 || !is_understood) {
    std::fprintf(stderr, "usage: speculation MODEL_DIR DRAFTS_DIR FOLDER [--quick] [--rounds N]\n");
    return 2;
  }
  dhs::set_log_level(dhs::LogLevel::kError);
  stay_on_this_processor();
  Plan plan = is_quick ? quick_plan(paths[1]) : full_plan(paths[1]);
  for (Phase& phase : plan.phases) {
    if (rounds > 0) phase.rounds = rounds;
  }
  return run(paths[0], std::move(plan), paths[2]);
}
