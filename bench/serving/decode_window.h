// Steady decoding on engines in this process: so many requests on each, none joins and none leaves
// while they are measured. What is compared is measured in turns of a fraction of a second.
#pragma once

#include <memory>
#include <vector>

#include "gated_engine.h"
#include "workload.h"

namespace dhs::bench {

struct DecodeLoad {
  int concurrency = 1;
  float temperature = 0;
  int64_t tokens_each = 0;  // of a request on average, measured
  int64_t warm_tokens = 8;  // of every request, before
  double longest_s = 3;     // the window ends by then
  double turn_s = 0.25;     // and the step that it ends in
  int first_prompt = 0;     // into the prompts; they wrap around
};

struct DecodeWindow {
  double seconds = 0;
  // Differences of the engine's counters.
  int64_t steps = 0;
  int64_t tokens = 0;  // of output
  int64_t draws_with_drafts = 0;
  int64_t drafts_verified = 0;
  int64_t drafts_accepted = 0;
  std::vector<int64_t> verified_at;  // by the draft's place
  std::vector<int64_t> accepted_at;
  int64_t rows_needed = 0;   // distinct rows of a pass and index group
  int64_t rows_fetched = 0;  // of them, from the host
  int64_t fetched_bytes = 0;
  int64_t draft_cap = 0;  // at the end
  int64_t running = 0;    // requests at the begin; fewer than asked for: some wait for memory
  std::vector<std::vector<TokenId>> outputs;  // of every request, from its first token on
};

// Of each engine, by its place: the requests are submitted until each has its warm tokens, one
// engine after the other; then they decode in turns until each has tokens_each on average or has
// decoded for longest_s; then they are cancelled. Stops the process with a message on an error.
std::vector<DecodeWindow> measure_in_turns(const std::vector<GatedEngine*>& engines,
                                           const std::vector<std::vector<TokenId>>& prompts,
                                           const DecodeLoad& load);

}  // namespace dhs::bench
