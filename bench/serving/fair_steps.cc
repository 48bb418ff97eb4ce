// Token times of requests that decode while somebody's long prompt is computed beside them: alone,
// with chunks of prompt bounded only by the step, by a fixed cap, and by a token-time target.
//
//   fair_steps MODEL_DIR
#include <absl/time/clock.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "workload.h"

namespace dhs::bench {
namespace {

constexpr int kNumDecoding = 8;
constexpr int64_t kShortPrompt = 256;
constexpr int32_t kTokens = 400;
constexpr size_t kWarmTokens = 40;  // of each decoding request, before the long prompt arrives

// When each token came.
class ArrivalSink final : public TokenSink {
 public:
  void on_tokens(const std::vector<TokenOutput>& tokens) override {
    std::lock_guard lock(mutex_);
    times_.insert(times_.end(), tokens.size(), absl::Now());
    changed_.notify_all();
  }
  void on_finished(const Finished&) override {
    std::lock_guard lock(mutex_);
    is_finished_ = true;
    changed_.notify_all();
  }
  std::vector<absl::Time> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_finished_ || times_.size() >= count; });
    return times_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<absl::Time> times_;
  bool is_finished_ = false;
};

struct Setting {
  const char* name;
  bool has_long_prompt = true;
  int prefill_chunk = 512;
  absl::Duration tpot_target = absl::InfiniteDuration();
};

struct Result {
  double p50_ms = 0;
  double p99_ms = 0;
  double most_ms = 0;
  double first_token_s = 0;  // of the long prompt
};

GenerateRequest request_of(std::vector<TokenId> prompt, int32_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

// Gaps between tokens that came in [begin, end].
void add_gaps(const std::vector<absl::Time>& times, absl::Time begin, absl::Time end,
              std::vector<double>& gaps_ms) {
  for (size_t i = 1; i < times.size(); ++i) {
    if (times[i - 1] < begin || times[i] > end) continue;
    gaps_ms.push_back(absl::ToDoubleMilliseconds(times[i] - times[i - 1]));
  }
}

double quantile(std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * std::ssize(sorted)))];
}

Result measure(const std::string& model_dir, const std::vector<TokenId>& text,
               const Setting& setting) {
  EngineConfig config;
  config.model.path = model_dir;
  config.device.memory_bytes = int64_t{96} << 20;
  config.host.pool_bytes = int64_t{160} << 20;
  config.scheduler.max_batched_tokens = 512;
  config.scheduler.prefill_chunk = setting.prefill_chunk;
  config.scheduler.tpot_target = setting.tpot_target;
  config.kv.prefix_cache = false;
  auto engine = or_die(start_engine(config));
  const int64_t longest = engine->model_info().max_context - 16;
  std::vector<std::shared_ptr<ArrivalSink>> sinks;
  for (int i = 0; i < kNumDecoding; ++i) {
    sinks.push_back(std::make_shared<ArrivalSink>());
    const auto prompt = window(text, i * 1000, kShortPrompt);
    or_die(engine->submit(request_of(prompt, kTokens), sinks.back()));
  }
  for (const auto& sink : sinks) sink->wait_for(kWarmTokens);
  const absl::Time begin = absl::Now();
  Result result;
  absl::Time end = absl::InfiniteFuture();
  if (setting.has_long_prompt) {
    auto long_sink = std::make_shared<ArrivalSink>();
    or_die(engine->submit(request_of(window(text, 20000, longest), 1), long_sink));
    end = long_sink->wait_for(1).front();
    result.first_token_s = absl::ToDoubleSeconds(end - begin);
  }
  std::vector<double> gaps_ms;
  for (const auto& sink : sinks) add_gaps(sink->wait_for(kTokens), begin, end, gaps_ms);
  std::sort(gaps_ms.begin(), gaps_ms.end());
  result.p50_ms = quantile(gaps_ms, 0.5);
  result.p99_ms = quantile(gaps_ms, 0.99);
  result.most_ms = gaps_ms.back();
  return result;
}

void print(const Setting& setting, const Result& result, const Result& alone) {
  std::printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f |", setting.name, result.p50_ms,
              result.p99_ms, result.most_ms, result.p99_ms / alone.p50_ms,
              result.p99_ms / alone.p99_ms);
  if (setting.has_long_prompt) {
    std::printf(" %.2f |\n", result.first_token_s);
  } else {
    std::printf(" - |\n");
  }
  std::fflush(stdout);
}

void run(const std::string& model_dir) {
  const std::vector<TokenId> text = held_out_tokens(model_dir);
  std::printf("%d requests decode; one prompt of the longest context comes in between\n\n",
              kNumDecoding);
  std::printf(
      "| steps | TPOT p50 ms | p99 ms | most ms | p99 / p50 alone | p99 / p99 alone | "
      "first token of the long prompt, s |\n|---|---|---|---|---|---|---|\n");
  const Setting alone{.name = "no prompt beside them", .has_long_prompt = false};
  measure(model_dir, text, alone);  // the first engine of a process touches its memory
  const Result base = measure(model_dir, text, alone);
  print(alone, base, base);
  const absl::Duration target = absl::Milliseconds(1) * (1.6 * base.p50_ms);
  for (const Setting& setting : {Setting{.name = "512 prompt tokens"},
                                 Setting{.name = "prefill_chunk 64", .prefill_chunk = 64},
                                 Setting{.name = "tpot_target 1.6 x p50", .tpot_target = target}}) {
    print(setting, measure(model_dir, text, setting), base);
  }
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fair_steps MODEL_DIR\n");
    return 2;
  }
  dhs::set_log_level(dhs::LogLevel::kWarning);
  dhs::bench::run(argv[1]);
  return 0;
}
