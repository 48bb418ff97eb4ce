#include "load_run.h"

#include <absl/time/clock.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace dhs::bench {

class LoadRun::Sink final : public TokenSink {
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

bool LoadRun::all_finished(const Sinks& sinks) {
  return std::all_of(sinks.begin(), sinks.end(), [](const auto& s) { return s->is_finished(); });
}

double fetch_fraction(const EngineState& from, const EngineState& to) {
  int64_t needed = 0;
  int64_t missed = 0;
  for (size_t g = 0; g < to.groups.size(); ++g) {
    needed += to.groups[g].rows_needed() - from.groups[g].rows_needed();
    missed += to.groups[g].rows_missed - from.groups[g].rows_missed;
  }
  return needed == 0 ? 0 : static_cast<double>(missed) / static_cast<double>(needed);
}

LoadRun::LoadRun(const EngineConfig& config, const LoadShape& shape,
                 const std::vector<TokenId>& text)
    : shape_(shape), text_(text), engine_(or_die(start_engine(config))) {}

LoadRun::~LoadRun() = default;

LoadOutcome LoadRun::run() {
  const auto all_begun = [](const Sinks& sinks) {
    return std::all_of(sinks.begin(), sinks.end(), [](const auto& s) { return s->has_begun(); });
  };
  begin_ = absl::Now();
  const auto rest = static_cast<int32_t>(engine_->model_info().max_context - shape_.steady_prompt);
  steady_ = submit(shape_.num_steady, shape_.steady_prompt, rest);
  watch([&] { return all_begun(steady_); });
  outcome_.low_before = low_phase();
  const EngineState before = latest();
  outcome_.first_burst_sample = outcome_.samples.size() - 1;
  const Sinks burst = submit(shape_.num_burst, shape_.burst_prompt, shape_.burst_tokens);
  watch([&] { return all_finished(burst); });
  outcome_.high = fetch_fraction(before, latest());
  outcome_.low_after = low_phase();
  engine_->drain(absl::ZeroDuration());
  return std::move(outcome_);
}

LoadRun::Sinks LoadRun::submit(int count, int64_t prompt_tokens, int32_t max_tokens) {
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

void LoadRun::watch(const std::function<bool()>& is_over) {
  while (!is_over()) {
    if (all_finished(steady_) && !steady_.empty()) {
      die(absl::OutOfRangeError("the steady requests filled the context before the load was over"));
    }
    EngineState state = engine_->state();
    if (outcome_.samples.empty() || state.steps != latest().steps) {
      outcome_.samples.push_back({absl::ToDoubleSeconds(absl::Now() - begin_), std::move(state)});
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

double LoadRun::low_phase() {
  const int64_t first = latest().steps;
  watch([&] { return latest().steps >= first + shape_.warm_steps; });
  const EngineState warm = latest();
  watch([&] { return latest().steps >= first + shape_.low_steps; });
  return fetch_fraction(warm, latest());
}

}  // namespace dhs::bench
