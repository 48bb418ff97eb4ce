// Load that comes and goes on one engine in this process: few requests decode, many join them at
// once and leave again. What the engine's state was at the end of every step.
#pragma once

#include <absl/time/time.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "workload.h"

namespace dhs::bench {

struct LoadShape {
  int num_steady = 0;
  int64_t steady_prompt = 0;  // tokens
  int num_burst = 0;
  int64_t burst_prompt = 0;
  int32_t burst_tokens = 0;
  int64_t low_steps = 0;   // steps of either low phase
  int64_t warm_steps = 0;  // of a low phase, before its fetches count
};

struct Sample {  // a step's end
  double seconds = 0;
  EngineState state;

  int64_t row_chunks() const { return state.device_row_cache_bytes / state.chunk_bytes; }
};

// Of the distinct rows that were needed from one state to the other, the share from the host.
double fetch_fraction(const EngineState& from, const EngineState& to);

struct LoadOutcome {
  std::vector<Sample> samples;
  size_t first_burst_sample = 0;  // the last one before the burst was submitted
  double low_before = 0;          // host-fetch fractions
  double high = 0;
  double low_after = 0;
};

// Runs the three phases and stops the engine. Prompts are windows of `text`, the same in every run.
class LoadRun {
 public:
  LoadRun(const EngineConfig& config, const LoadShape& shape, const std::vector<TokenId>& text);
  ~LoadRun();

  LoadOutcome run();

 private:
  class Sink;
  using Sinks = std::vector<std::shared_ptr<Sink>>;

  const EngineState& latest() const { return outcome_.samples.back().state; }
  static bool all_finished(const Sinks& sinks);
  Sinks submit(int count, int64_t prompt_tokens, int32_t max_tokens);
  // A sample of every step, until `is_over`. Steps take longer than looking.
  void watch(const std::function<bool()>& is_over);
  double low_phase();

  const LoadShape shape_;
  const std::vector<TokenId>& text_;
  std::unique_ptr<Engine> engine_;
  absl::Time begin_;
  int num_submitted_ = 0;
  Sinks steady_;
  LoadOutcome outcome_;
};

}  // namespace dhs::bench
