// Load that comes and goes, on the real engine: few requests decode, many join them at once, and
// leave again. What is resident, what is fetched, and how soon memory changes hands, step by step.
//
//   load_step MODEL_DIR FOLDER      writes FOLDER/load_step.csv and FOLDER/load_step.json
//
// The link between the tiers is emulated: host and device memory are the same here.
#include <absl/time/clock.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "workload.h"

namespace dhs::bench {
namespace {

constexpr int kNumSteady = 2;
constexpr int64_t kSteadyPrompt = 6000;
constexpr int kNumBurst = 14;
constexpr int64_t kBurstPrompt = 3000;
constexpr int32_t kBurstTokens = 64;
constexpr int64_t kLowSteps = 250;   // decode steps of either low phase
constexpr int64_t kWarmSteps = 100;  // of a low phase, before its fetches count
constexpr int64_t kFixedRows = 512;  // twice the demo model's top-k
constexpr int64_t kLinkBandwidth = 190'000'000;

class Sink final : public TokenSink {
 public:
  void on_tokens(const std::vector<TokenOutput>& tokens) override { num_tokens_ += tokens.size(); }
  void on_finished(const Finished& finished) override {
    if (finished.reason == FinishReason::kError) die(finished.error);
    is_finished_ = true;
  }
  bool is_finished() const { return is_finished_; }
  bool has_begun() const { return num_tokens_ > 0; }

 private:
  std::atomic<size_t> num_tokens_ = 0;
  std::atomic<bool> is_finished_ = false;
};

using Sinks = std::vector<std::shared_ptr<Sink>>;

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

struct Sample {  // a step's end
  double seconds = 0;
  EngineState state;

  int64_t row_chunks() const { return state.device_row_cache_bytes / state.chunk_bytes; }
};

double fetch_fraction(const EngineState& from, const EngineState& to) {
  int64_t needed = 0;
  int64_t missed = 0;
  for (size_t g = 0; g < to.groups.size(); ++g) {
    needed += to.groups[g].rows_needed() - from.groups[g].rows_needed();
    missed += to.groups[g].rows_missed - from.groups[g].rows_missed;
  }
  return needed == 0 ? 0 : static_cast<double>(missed) / static_cast<double>(needed);
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
  std::vector<Sample> samples;
  double low_before = 0;
  double high = 0;
  double low_after = 0;
  std::optional<Release> release;
};

class LoadStep {
 public:
  LoadStep(const std::string& model_dir, ResidencyMode mode)
      : text_(held_out_tokens(model_dir)),
        engine_(or_die(start_engine(make_config(model_dir, mode)))) {}

  Outcome run() {
    begin_ = absl::Now();
    const int32_t rest = static_cast<int32_t>(engine_->model_info().max_context - kSteadyPrompt);
    const Sinks steady = submit(kNumSteady, kSteadyPrompt, rest);
    watch([&] { return all(steady, &Sink::has_begun); });
    outcome_.low_before = low_phase();
    const EngineState before = latest();
    const size_t first = outcome_.samples.size() - 1;
    const Sinks burst = submit(kNumBurst, kBurstPrompt, kBurstTokens);
    watch([&] { return all(burst, &Sink::is_finished); });
    outcome_.high = fetch_fraction(before, latest());
    outcome_.low_after = low_phase();
    find_release(first);
    engine_->drain(absl::ZeroDuration());
    return std::move(outcome_);
  }

 private:
  const EngineState& latest() const { return outcome_.samples.back().state; }

  static bool all(const Sinks& sinks, bool (Sink::*is)() const) {
    for (const auto& sink : sinks) {
      if (!((*sink).*is)()) return false;
    }
    return true;
  }

  Sinks submit(int count, int64_t prompt_tokens, int32_t max_tokens) {
    Sinks sinks;
    for (int i = 0; i < count; ++i) {
      GenerateRequest request;
      request.prompt = window(text_, num_submitted_++ * 1700, prompt_tokens);
      request.sampling.temperature = 0;
      request.sampling.max_tokens = max_tokens;
      request.sampling.ignore_eos = true;
      sinks.push_back(std::make_shared<Sink>());
      or_die(engine_->submit(std::move(request), sinks.back()));
    }
    return sinks;
  }

  // A sample of every step, until `is_over`. Steps take longer than looking.
  void watch(const std::function<bool()>& is_over) {
    while (!is_over()) {
      EngineState state = engine_->state();
      if (outcome_.samples.empty() || state.steps != latest().steps) {
        outcome_.samples.push_back({absl::ToDoubleSeconds(absl::Now() - begin_), std::move(state)});
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  double low_phase() {
    const int64_t first = latest().steps;
    watch([&] { return latest().steps >= first + kWarmSteps; });
    const EngineState warm = latest();
    watch([&] { return latest().steps >= first + kLowSteps; });
    return fetch_fraction(warm, latest());
  }

  // The first step that begins with more requests than the one before, and the first since from
  // which on row caches hold less.
  void find_release(size_t first) {
    const std::vector<Sample>& samples = outcome_.samples;
    Release release;
    for (size_t i = first + 1; i < samples.size(); ++i) {
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
      outcome_.release = release;
      return;
    }
  }

  const std::vector<TokenId> text_;
  std::unique_ptr<Engine> engine_;
  absl::Time begin_;
  int num_submitted_ = 0;
  Outcome outcome_;
};

void write_csv(std::FILE* file, const char* mode, const Outcome& outcome) {
  const Sample* before = &outcome.samples.front();
  for (const Sample& sample : outcome.samples) {
    const EngineState& state = sample.state;
    std::fprintf(file, "%s,%.4f,%ld,%ld,%ld,%ld,%ld,%.6f\n", mode, sample.seconds, state.steps,
                 state.running_requests, state.generated_tokens, sample.row_chunks(),
                 state.chunks_free, fetch_fraction(before->state, state));
    before = &sample;
  }
}

void print(const char* mode, const Outcome& outcome) {
  std::printf("| %s | %.2f | %.2f | %.2f |", mode, 100 * outcome.low_before, 100 * outcome.high,
              100 * outcome.low_after);
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
      kNumSteady, kSteadyPrompt, kNumBurst, kBurstPrompt, kLinkBandwidth / 1'000'000);
  const Outcome fixed = LoadStep(model_dir, ResidencyMode::kFixed).run();
  print("fixed", fixed);
  const Outcome adaptive = LoadStep(model_dir, ResidencyMode::kAdaptive).run();
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
  const EngineState& state = adaptive.samples.back().state;
  std::fprintf(json,
               "{\"summary\": {\"fixed_fraction\": %.6f, \"adaptive_fraction\": %.6f, "
               "\"release_steps\": %ld},\n \"simulated\": false, \"link\": \"emulated\", "
               "\"link_bytes_per_s\": %ld, \"device\": \"%s\", \"model\": \"%s\",\n "
               "\"steady_requests\": %d, \"steady_prompt\": %ld, \"burst_requests\": %d, "
               "\"burst_prompt\": %ld, \"burst_tokens\": %d,\n \"fixed_rows\": %ld, "
               "\"device_pool_bytes\": %ld, \"chunk_bytes\": %ld}\n",
               fixed.low_before, adaptive.low_before, release_steps, kLinkBandwidth,
               state.device.c_str(), state.model_name.c_str(), kNumSteady, kSteadyPrompt, kNumBurst,
               kBurstPrompt, kBurstTokens, kFixedRows, state.device_pool_bytes, state.chunk_bytes);
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
