// Load that comes and goes, on the real engine: few requests decode, many join them at once, and
// leave again. What is resident, what is fetched, and how soon memory changes hands, step by step.
//
//   load_step MODEL_DIR FOLDER      writes FOLDER/load_step.csv and FOLDER/load_step.json
//
// The link between the tiers is emulated: host and device memory are the same here.
#include <cstdio>

#include "load_run.h"

namespace dhs::bench {
namespace {

constexpr LoadShape kShape = {.num_steady = 2,
                              .steady_prompt = 6000,
                              .num_burst = 14,
                              .burst_prompt = 3000,
                              .burst_tokens = 64,
                              .low_steps = 250,
                              .warm_steps = 100};
constexpr int64_t kFixedRows = 512;  // twice the demo model's top-k
constexpr int64_t kLinkBandwidth = 190'000'000;

EngineConfig make_config(const std::string& model_dir, ResidencyMode mode) {
  EngineConfig config;
  config.model.path = model_dir;
  config.model.name = "demo";
  config.device.chunk_bytes = int64_t{128} << 10;
  config.device.memory_bytes = int64_t{44} << 20;  // rows of the steady ones, or all at once
  config.device.emulate_link = true;
  config.device.link_bandwidth = kLinkBandwidth;
  config.host.pool_bytes = int64_t{240} << 20;
  config.residency.mode = mode;
  config.residency.fixed_rows_per_request = kFixedRows;
  config.kv.prefix_cache = false;
  return config;
}

struct Release {  // of chunks for an admission
  int64_t admitted_step = 0;
  int64_t released_step = 0;
  int64_t row_chunks_before = 0;
  int64_t row_chunks_after = 0;
  int64_t running_before = 0;
  int64_t running_after = 0;
};

struct Outcome {
  LoadOutcome load;
  std::optional<Release> release;
};

// The first step that begins with more requests than the one before, and the first since from
// which on row caches hold less.
std::optional<Release> find_release(const LoadOutcome& load) {
  const std::vector<Sample>& samples = load.samples;
  Release release;
  for (size_t i = load.first_burst_sample + 1; i < samples.size(); ++i) {
    const EngineState& before = samples[i - 1].state;
    const EngineState& after = samples[i].state;
    if (release.admitted_step == 0 && after.running_requests > before.running_requests) {
      release.admitted_step = after.steps;
      release.running_before = before.running_requests;
      release.running_after = after.running_requests;
    }
    if (release.admitted_step == 0 || samples[i].row_chunks() >= samples[i - 1].row_chunks()) {
      continue;
    }
    release.released_step = after.steps;
    release.row_chunks_before = samples[i - 1].row_chunks();
    release.row_chunks_after = samples[i].row_chunks();
    return release;
  }
  return std::nullopt;
}

Outcome run_mode(const std::string& model_dir, ResidencyMode mode) {
  const std::vector<TokenId> text = held_out_tokens(model_dir);
  Outcome outcome;
  outcome.load = LoadRun(make_config(model_dir, mode), kShape, text).run();
  outcome.release = find_release(outcome.load);
  return outcome;
}

void write_csv(std::FILE* file, const char* mode, const Outcome& outcome) {
  const Sample* before = &outcome.load.samples.front();
  for (const Sample& sample : outcome.load.samples) {
    const EngineState& state = sample.state;
    std::fprintf(file, "%s,%.4f,%ld,%ld,%ld,%ld,%ld,%.6f\n", mode, sample.seconds, state.steps,
                 state.running_requests, state.generated_tokens, sample.row_chunks(),
                 state.chunks_free, fetch_fraction(before->state, state));
    before = &sample;
  }
}

void print(const char* mode, const Outcome& outcome) {
  std::printf("| %s | %.2f | %.2f | %.2f |", mode, 100 * outcome.load.low_before,
              100 * outcome.load.high, 100 * outcome.load.low_after);
  if (!outcome.release.has_value()) {
    std::printf(" none |\n");
    return;
  }
  const Release& release = *outcome.release;
  std::printf(
      " step %ld runs %ld requests instead of %ld; step %ld holds %ld chunks of rows "
      "instead of %ld |\n",
      release.admitted_step, release.running_after, release.running_before, release.released_step,
      release.row_chunks_after, release.row_chunks_before);
}

int run(const std::string& model_dir, const std::string& folder) {
  std::printf(
      "%d requests of %ld tokens decode; %d of %ld join at once and leave. The link is "
      "emulated: %ld MB/s.\n\n| mode | host-fetch %% before | during | after | release "
      "|\n|---|---|---|---|---|\n",
      kShape.num_steady, kShape.steady_prompt, kShape.num_burst, kShape.burst_prompt,
      kLinkBandwidth / 1'000'000);
  const Outcome fixed = run_mode(model_dir, ResidencyMode::kFixed);
  print("fixed", fixed);
  const Outcome adaptive = run_mode(model_dir, ResidencyMode::kAdaptive);
  print("adaptive", adaptive);
  std::FILE* csv = std::fopen((folder + "/load_step.csv").c_str(), "w");
  std::FILE* json = std::fopen((folder + "/load_step.json").c_str(), "w");
  if (csv == nullptr || json == nullptr) {
    die(absl::NotFoundError(absl::StrCat(folder, " cannot be written to")));
  }
  std::fprintf(csv,
               "mode,seconds,step,running,generated_tokens,row_chunks,free_chunks,"
               "fetch_fraction\n");
  write_csv(csv, "fixed", fixed);
  write_csv(csv, "adaptive", adaptive);
  const bool is_released = adaptive.release.has_value();
  const int64_t release_steps =
      is_released ? adaptive.release->released_step - adaptive.release->admitted_step : -1;
  const EngineState& state = adaptive.load.samples.back().state;
  std::fprintf(json,
               "{\"summary\": {\"fixed_fraction\": %.6f, \"adaptive_fraction\": %.6f, "
               "\"release_steps\": %ld},\n \"simulated\": false, \"link\": \"emulated\", "
               "\"link_bytes_per_s\": %ld, \"device\": \"%s\", \"model\": \"%s\",\n "
               "\"steady_requests\": %d, \"steady_prompt\": %ld, \"burst_requests\": %d, "
               "\"burst_prompt\": %ld, \"burst_tokens\": %d,\n \"fixed_rows\": %ld, "
               "\"device_pool_bytes\": %ld, \"chunk_bytes\": %ld}\n",
               fixed.load.low_before, adaptive.load.low_before, release_steps, kLinkBandwidth,
               state.device.c_str(), state.model_name.c_str(), kShape.num_steady,
               kShape.steady_prompt, kShape.num_burst, kShape.burst_prompt, kShape.burst_tokens,
               kFixedRows, state.device_pool_bytes, state.chunk_bytes);
  std::fclose(csv);
  std::fclose(json);
  return is_released ? 0 : 1;
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: load_step MODEL_DIR FOLDER\n");
    return 2;
  }
  dhs::set_log_level(dhs::LogLevel::kError);
  return dhs::bench::run(argv[1], argv[2]);
}
