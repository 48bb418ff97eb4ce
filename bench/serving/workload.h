// Runs requests through an engine in this process and measures what a client would see.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dhisparse/engine.h"

namespace dhs::bench {

// Stops the process with a message on an error.
[[noreturn]] void die(const absl::Status& status);
template <class T>
T or_die(absl::StatusOr<T> result) {
  if (!result.ok()) die(result.status());
  return *std::move(result);
}

struct RequestTiming {
  double time_to_first_token_s = 0;
  double time_per_output_token_s = 0;  // (last - first) / (tokens - 1)
};

struct WorkloadResult {
  std::vector<std::vector<TokenOutput>> outputs;
  std::vector<RequestTiming> timings;
  double wall_s = 0;
  EngineState state;  // after the last request

  int64_t num_output_tokens() const;
  double median_time_per_output_token_s() const;
};

// Submits all requests at once and waits for all. Stops the process with a message on an error.
WorkloadResult run_workload(const EngineConfig& config,
                            const std::vector<GenerateRequest>& requests);

// The demo checkpoint's held-out text as token ids.
std::vector<TokenId> held_out_tokens(const std::string& model_dir);

// A window of `tokens`, wrapping around at the end.
std::vector<TokenId> window(const std::vector<TokenId>& tokens, int64_t start, int64_t count);

}  // namespace dhs::bench
