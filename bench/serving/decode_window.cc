#include "decode_window.h"

#include <absl/time/clock.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace dhs::bench {
namespace {

// A request that accepts much runs ahead of the mean; it must not end before the window does.
constexpr int64_t kMostAhead = 5;

// Of all requests of a window.
class Progress {
 public:
  explicit Progress(int64_t warm_tokens) : warm_tokens_(warm_tokens) {}

  // A request has so many tokens after num_new.
  void add_tokens(int64_t num_new, int64_t num_tokens) {
    if (num_tokens < warm_tokens_ || num_tokens - num_new >= warm_tokens_) return;
    const std::lock_guard lock(mutex_);
    ++num_warm_;
    changed_.notify_all();
  }
  void add_finished() {
    const std::lock_guard lock(mutex_);
    ++num_finished_;
    changed_.notify_all();
  }

  void wait_until_warm(int64_t num_requests) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_warm_ >= num_requests; });
  }
  void wait_until_finished(int64_t num_requests) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_finished_ >= num_requests; });
  }
  int64_t num_finished() {
    const std::lock_guard lock(mutex_);
    return num_finished_;
  }

 private:
  const int64_t warm_tokens_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t num_warm_ = 0;
  int64_t num_finished_ = 0;
};

class KeepingSink final : public TokenSink {
 public:
  explicit KeepingSink(Progress& progress) : progress_(progress) {}

  void on_tokens(const std::vector<TokenOutput>& tokens) override {
    for (const TokenOutput& token : tokens) tokens_.push_back(token.token);
    progress_.add_tokens(std::ssize(tokens), std::ssize(tokens_));
  }
  void on_finished(const Finished& finished) override {
    if (finished.reason == FinishReason::kError) die(finished.error);
    progress_.add_finished();
  }
  std::vector<TokenId> take_tokens() { return std::move(tokens_); }  // once finished

 private:
  Progress& progress_;
  std::vector<TokenId> tokens_;
};

GenerateRequest make_request(const std::vector<TokenId>& prompt, const DecodeLoad& load,
                             int64_t longest, uint64_t seed) {
  GenerateRequest request;
  request.prompt = prompt;
  request.sampling.temperature = load.temperature;
  // With a seed its drafts would be chosen, not drawn: fewer are accepted.
  if (load.temperature == 0) request.sampling.seed = seed;
  request.sampling.max_tokens = static_cast<int32_t>(
      std::min(load.warm_tokens + kMostAhead * load.tokens_each, longest - std::ssize(prompt)));
  request.sampling.ignore_eos = true;
  return request;
}

std::vector<int64_t> difference(const std::vector<int64_t>& from, std::vector<int64_t> to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] -= from[i];
  return to;
}

DecodeWindow difference(const EngineState& from, const EngineState& to) {
  DecodeWindow window;
  window.steps = to.steps - from.steps;
  window.tokens = to.generated_tokens - from.generated_tokens;
  window.draws_with_drafts = to.drafts.draws - from.drafts.draws;
  window.drafts_verified = to.drafts.verified - from.drafts.verified;
  window.drafts_accepted = to.drafts.accepted - from.drafts.accepted;
  window.verified_at = difference(from.drafts.verified_at, to.drafts.verified_at);
  window.accepted_at = difference(from.drafts.accepted_at, to.drafts.accepted_at);
  for (size_t g = 0; g < to.groups.size(); ++g) {
    const GroupState& before = from.groups[g];
    const GroupState& after = to.groups[g];
    window.rows_needed += after.rows_needed() - before.rows_needed();
    window.rows_fetched += after.rows_missed - before.rows_missed;
    window.fetched_bytes += after.fetched_bytes - before.fetched_bytes;
  }
  window.draft_cap = to.draft_cap;
  window.running = from.running_requests;
  return window;
}

// One engine's.
class Decode {
 public:
  Decode(GatedEngine& gated, const std::vector<std::vector<TokenId>>& prompts,
         const DecodeLoad& load)
      : gate_(*gated.gate), engine_(*gated.engine), load_(load), progress_(load.warm_tokens) {
    const int64_t longest = engine_.model_info().longest_request;
    for (int i = 0; i < load.concurrency; ++i) {
      const size_t prompt = (load.first_prompt + i) % prompts.size();
      sinks_.push_back(std::make_shared<KeepingSink>(progress_));
      requests_.push_back(or_die(engine_.submit(
          make_request(prompts[prompt], load, longest, 1000 + prompt), sinks_.back())));
    }
    progress_.wait_until_warm(load.concurrency);
    gate_.close();
    from_ = engine_.state();
  }

  bool is_over() const {
    const int64_t tokens = engine_.state().generated_tokens - from_.generated_tokens;
    return seconds_ >= load_.longest_s || tokens >= load_.concurrency * load_.tokens_each;
  }

  void take_turn() {
    const absl::Time begin = absl::Now();
    gate_.open();
    absl::SleepFor(absl::Seconds(load_.turn_s));
    seconds_ += absl::ToDoubleSeconds(gate_.close() - begin);
  }

  DecodeWindow end() {
    DecodeWindow window = difference(from_, engine_.state());
    window.seconds = seconds_;
    if (progress_.num_finished() > 0) {
      die(absl::OutOfRangeError("a request ended before its window did"));
    }
    gate_.open();
    for (const RequestId request : requests_) engine_.cancel(request);
    progress_.wait_until_finished(load_.concurrency);
    for (const auto& sink : sinks_) window.outputs.push_back(sink->take_tokens());
    return window;
  }

 private:
  Gate& gate_;
  Engine& engine_;
  const DecodeLoad load_;
  Progress progress_;
  std::vector<std::shared_ptr<KeepingSink>> sinks_;
  std::vector<RequestId> requests_;
  EngineState from_;
  double seconds_ = 0;
};

}  // namespace

std::vector<DecodeWindow> measure_in_turns(const std::vector<GatedEngine*>& engines,
                                           const std::vector<std::vector<TokenId>>& prompts,
                                           const DecodeLoad& load) {
  std::vector<std::unique_ptr<Decode>> decodes;
  for (GatedEngine* engine : engines) {
    decodes.push_back(std::make_unique<Decode>(*engine, prompts, load));
  }
  const auto is_over = [](const auto& decode) { return decode->is_over(); };
  while (!std::all_of(decodes.begin(), decodes.end(), is_over)) {
    for (const auto& decode : decodes) {
      if (!decode->is_over()) decode->take_turn();
    }
  }
  std::vector<DecodeWindow> windows;
  for (const auto& decode : decodes) windows.push_back(decode->end());
  return windows;
}

}  // namespace dhs::bench
