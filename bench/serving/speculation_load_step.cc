// Load that comes and goes with a draft: how many drafts a step verifies, what is resident and how
// fast tokens come, when two requests become sixteen and two again. Without a draft, with a fixed
// and with an adaptive length.
//
//   speculation_load_step MODEL_DIR DRAFTS_DIR FOLDER DRAFT
//
// Writes FOLDER/speculation_load_step.csv and .json. The link between the tiers is emulated.
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cstdio>

#include "draft_variants.h"
#include "load_run.h"

namespace dhs::bench {
namespace {

constexpr LoadShape kShape = {.num_steady = 2,
                              .steady_prompt = 2500,
                              .num_burst = 14,
                              .burst_prompt = 600,
                              .burst_tokens = 512,
                              .low_steps = 400,
                              .warm_steps = 150};
constexpr int64_t kLinkBandwidth = 190'000'000;

EngineConfig make_config(const std::string& model_dir, const DraftConfig& draft) {
  EngineConfig config;
  config.model.path = model_dir;
  config.model.name = "demo";
  config.draft = draft;
  config.device.num_threads = 1;  // as in speculation.cc
  config.device.chunk_bytes = int64_t{128} << 10;
  config.device.memory_bytes = int64_t{52} << 20;
  config.device.emulate_link = true;
  config.device.link_bandwidth = kLinkBandwidth;
  config.host.pool_bytes = int64_t{320} << 20;
  config.kv.prefix_cache = false;
  return config;
}

struct Rate {  // of a phase
  double tokens_per_s = 0;
  double drafts_per_draw = 0;
};

Rate rate_of(const Sample& from, const Sample& to) {
  const double tokens = to.state.generated_tokens - from.state.generated_tokens;
  const double verified = to.state.drafts.verified - from.state.drafts.verified;
  const double accepted = to.state.drafts.accepted - from.state.drafts.accepted;
  return {.tokens_per_s = tokens / std::max(1e-9, to.seconds - from.seconds),
          .drafts_per_draw = verified / std::max(1.0, tokens - accepted)};
}

// While as many requests run as ever and no prompt is computed any more.
Rate rate_when_full(const LoadOutcome& load) {
  int64_t most = 0;
  for (const Sample& sample : load.samples) most = std::max(most, sample.state.running_requests);
  const auto last =
      std::find_if(load.samples.rbegin(), load.samples.rend(),
                   [&](const Sample& sample) { return sample.state.running_requests == most; });
  const auto first =
      std::find_if(load.samples.begin(), load.samples.end(), [&](const Sample& sample) {
        return sample.state.running_requests == most &&
               sample.state.prompt_tokens == last->state.prompt_tokens;
      });
  return rate_of(*first, *last);
}

Rate rate_of_last_steps(const LoadOutcome& load, size_t end) {
  const int64_t last_step = load.samples[end].state.steps;
  size_t begin = end;
  while (begin > 0 && load.samples[begin].state.steps > last_step - kShape.low_steps / 2) --begin;
  return rate_of(load.samples[begin], load.samples[end]);
}

void write_csv(std::FILE* file, const DraftVariant& variant, const LoadOutcome& load) {
  const Sample* before = &load.samples.front();
  for (const Sample& sample : load.samples) {
    const EngineState& state = sample.state;
    std::fprintf(file, "%s,%.4f,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%ld,%.6f\n", variant.length.c_str(),
                 sample.seconds, state.steps, state.running_requests, state.generated_tokens,
                 state.drafts.verified, state.drafts.accepted, state.draft_cap, sample.row_chunks(),
                 state.device_draft_bytes / state.chunk_bytes, state.chunks_free,
                 fetch_fraction(before->state, state));
    before = &sample;
  }
}

std::string summary_of(const DraftVariant& variant, const LoadOutcome& load) {
  const Rate before = rate_of_last_steps(load, load.first_burst_sample);
  const Rate full = rate_when_full(load);
  const Rate after = rate_of_last_steps(load, load.samples.size() - 1);
  std::printf("| %s | %.0f, %.0f, %.0f | %.2f, %.2f, %.2f | %.2f, %.2f, %.2f |\n",
              variant.length == "0" ? "none" : variant.length.c_str(), before.tokens_per_s,
              full.tokens_per_s, after.tokens_per_s, before.drafts_per_draw, full.drafts_per_draw,
              after.drafts_per_draw, 100 * load.low_before, 100 * load.high, 100 * load.low_after);
  std::fflush(stdout);
  return absl::StrFormat(
      "\"%s\": {\"tokens_per_s\": [%.1f, %.1f, %.1f], \"drafts_per_draw\": [%.3f, %.3f, %.3f], "
      "\"host_fetch_fraction\": [%.5f, %.5f, %.5f]}",
      variant.length, before.tokens_per_s, full.tokens_per_s, after.tokens_per_s,
      before.drafts_per_draw, full.drafts_per_draw, after.drafts_per_draw, load.low_before,
      load.high, load.low_after);
}

int run(const std::string& model_dir, const std::vector<DraftVariant>& variants,
        const std::string& folder) {
  std::FILE* csv = std::fopen((folder + "/speculation_load_step.csv").c_str(), "w");
  std::FILE* json = std::fopen((folder + "/speculation_load_step.json").c_str(), "w");
  if (csv == nullptr || json == nullptr) {
    die(absl::NotFoundError(absl::StrCat(folder, " cannot be written to")));
  }
  std::fprintf(csv,
               "length,seconds,step,running,generated_tokens,verified,accepted,draft_cap,"
               "row_chunks,draft_chunks,free_chunks,fetch_fraction\n");
  std::printf(
      "Before, while all decode, and after:\n\n| drafts | tokens/s | drafts verified per draw | "
      "host-fetch %% |\n|---|---|---|---|\n");
  const std::vector<TokenId> text = held_out_tokens(model_dir);
  std::vector<std::string> summaries;
  EngineState state;
  for (const DraftVariant& variant : variants) {
    const LoadOutcome load = LoadRun(make_config(model_dir, variant.config), kShape, text).run();
    write_csv(csv, variant, load);
    summaries.push_back(summary_of(variant, load));
    state = load.samples.back().state;
  }
  std::fprintf(json,
               "{\"summary\": {%s},\n \"simulated\": false, \"link\": \"emulated\", "
               "\"link_bytes_per_s\": %ld, \"device\": \"%s\", \"model\": \"%s\", \"draft\": "
               "\"%s\",\n \"steady_requests\": %d, \"steady_prompt\": %ld, \"burst_requests\": %d, "
               "\"burst_prompt\": %ld, \"burst_tokens\": %d,\n \"device_pool_bytes\": %ld, "
               "\"chunk_bytes\": %ld}\n",
               absl::StrJoin(summaries, ",\n  ").c_str(), kLinkBandwidth, state.device.c_str(),
               state.model_name.c_str(), variants.back().draft.c_str(), kShape.num_steady,
               kShape.steady_prompt, kShape.num_burst, kShape.burst_prompt, kShape.burst_tokens,
               state.device_pool_bytes, state.chunk_bytes);
  std::fclose(csv);
  std::fclose(json);
  return 0;
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  using namespace dhs::bench;
  if (argc != 5) {
    std::fprintf(stderr, "usage: speculation_load_step MODEL_DIR DRAFTS_DIR FOLDER DRAFT\n");
    return 2;
  }
  dhs::set_log_level(dhs::LogLevel::kError);
  std::vector<DraftVariant> variants = {without_draft()};
  const std::vector<DraftVariant> more = variants_of(argv[4], argv[2], 0);
  if (more.empty()) return 1;
  variants.insert(variants.end(), more.begin(), more.end());
  return run(argv[1], variants, argv[3]);
}
