// A client of the engine for tests: submits requests and collects what their sinks hear.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dhisparse/engine.h"

namespace dhs {

// Everything one request was told. Thread-safe.
class CollectingSink final : public TokenSink {
 public:
  void on_tokens(const std::vector<TokenOutput>& tokens) override;
  void on_finished(const Finished& finished) override;

  // Blocks until on_finished; the test's time-out is the limit.
  Finished wait();
  // Blocks until at least `count` tokens arrived or the request ended.
  void wait_for_tokens(size_t count);
  std::vector<TokenOutput> tokens() const;
  int num_finished() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenOutput> tokens_;
  std::optional<Finished> finished_;
  int num_finished_ = 0;
};

// Serves tests/models/demo with small tiers; change what a test is about.
EngineConfig demo_config();

// Deterministic token ids that mean nothing in particular, all below the demo vocabulary.
std::vector<TokenId> some_prompt(uint32_t seed, int64_t num_tokens);

// Submits all requests at once, in order, and waits for all of them.
std::vector<std::vector<TokenOutput>> generate_all(Engine& engine,
                                                   const std::vector<GenerateRequest>& requests);

// Fails the test unless every tier is empty within five seconds: the step after the last request
// returns its memory.
void expect_all_memory_free(const Engine& engine);

// Rows that came from the host since start, all index groups.
int64_t num_fetched(const EngineState& state);

// Token ids and logprob bits, for exact comparison and readable failures.
std::string fingerprint(const std::vector<TokenOutput>& tokens);

}  // namespace dhs
