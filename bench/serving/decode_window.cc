#include "decode_window.h"

#include <absl/time/clock.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace dhs::bench {
namespace {

// A request that accepts much runs ahead of the mean; it must not end before the window does.
constexpr int64_t kMostAhead = 5;

class KeepingSink final : public TokenSink {
 public:
  void on_tokens(const std::vector<TokenOutput>& tokens) override {
    for (const TokenOutput& token : tokens) tokens_.push_back(token.token);
    num_tokens_ = std::ssize(tokens_);
  }
  void on_finished(const Finished& finished) override {
    if (finished.reason == FinishReason::kError) die(finished.error);
    is_finished_ = true;
  }
  int64_t num_tokens() const { return num_tokens_; }
  bool is_finished() const { return is_finished_; }
  std::vector<TokenId> take_tokens() { return std::move(tokens_); }  // once finished

 private:
  std::vector<TokenId> tokens_;
  std::atomic<int64_t> num_tokens_ = 0;
  std::atomic<bool> is_finished_ = false;
};

using Sinks = std::vector<std::shared_ptr<KeepingSink>>;

template <class Condition>
void wait_until(const Condition& holds) {
  while (!holds()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

int64_t num_tokens(const Sinks& sinks) {
  int64_t total = 0;
  for (const auto& sink : sinks) total += sink->num_tokens();
  return total;
}

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

}  // namespace

DecodeWindow measure_decode(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
                            const DecodeLoad& load) {
  Sinks sinks;
  std::vector<RequestId> requests;
  for (int i = 0; i < load.concurrency; ++i) {
    const size_t prompt = (load.first_prompt + i) % prompts.size();
    sinks.push_back(std::make_shared<KeepingSink>());
    requests.push_back(or_die(engine.submit(
        make_request(prompts[prompt], load, engine.model_info().longest_request, 1000 + prompt),
        sinks.back())));
  }
  wait_until([&] {
    return std::all_of(sinks.begin(), sinks.end(),
                       [&](const auto& s) { return s->num_tokens() >= load.warm_tokens; });
  });
  const EngineState from = engine.state();
  const absl::Time begin = absl::Now();
  const int64_t target = num_tokens(sinks) + load.concurrency * load.tokens_each;
  const absl::Time latest = begin + absl::Seconds(load.longest_s);
  int64_t seen = num_tokens(sinks);
  wait_until([&] {  // a step's end: no window cuts one
    const int64_t before = std::exchange(seen, num_tokens(sinks));
    return seen >= target || (seen > before && absl::Now() >= latest);
  });
  const absl::Time end = absl::Now();
  const EngineState to = engine.state();
  if (std::any_of(sinks.begin(), sinks.end(), [](const auto& s) { return s->is_finished(); })) {
    die(absl::OutOfRangeError("a request ended before its window did"));
  }
  for (const RequestId request : requests) engine.cancel(request);
  for (const auto& sink : sinks) wait_until([&] { return sink->is_finished(); });
  DecodeWindow window = difference(from, to);
  window.seconds = absl::ToDoubleSeconds(end - begin);
  for (const auto& sink : sinks) window.outputs.push_back(sink->take_tokens());
  return window;
}

}  // namespace dhs::bench
