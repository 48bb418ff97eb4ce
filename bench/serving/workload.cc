#include "workload.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>

#include "dhisparse/tokenizer.h"

namespace dhs::bench {
void die(const absl::Status& status) {
  std::fprintf(stderr, "bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

namespace {

class TimingSink final : public TokenSink {
 public:
  void on_tokens(const std::vector<TokenOutput>& tokens) override {
    std::lock_guard lock(mutex_);
    const absl::Time now = absl::Now();
    if (tokens_.empty()) first_ = now;
    last_ = now;
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  void on_finished(const Finished& finished) override {
    std::lock_guard lock(mutex_);
    if (finished.reason == FinishReason::kError) die(finished.error);
    finished_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finished_; });
  }
  std::vector<TokenOutput> take_tokens() { return std::move(tokens_); }
  RequestTiming timing(absl::Time start) const {
    const double span = absl::ToDoubleSeconds(last_ - first_);
    const auto gaps = std::max<int64_t>(1, std::ssize(tokens_) - 1);
    return {absl::ToDoubleSeconds(first_ - start), span / static_cast<double>(gaps)};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenOutput> tokens_;
  absl::Time first_;
  absl::Time last_;
  bool finished_ = false;
};

}  // namespace

int64_t WorkloadResult::num_output_tokens() const {
  int64_t total = 0;
  for (const auto& output : outputs) total += std::ssize(output);
  return total;
}

double WorkloadResult::median_time_per_output_token_s() const {
  std::vector<double> times;
  for (const RequestTiming& timing : timings) times.push_back(timing.time_per_output_token_s);
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

WorkloadResult run_workload(const EngineConfig& config,
                            const std::vector<GenerateRequest>& requests) {
  auto engine = start_engine(config);
  if (!engine.ok()) die(engine.status());
  WorkloadResult result;
  std::vector<std::shared_ptr<TimingSink>> sinks;
  const absl::Time start = absl::Now();
  for (const GenerateRequest& request : requests) {
    sinks.push_back(std::make_shared<TimingSink>());
    const auto id = (*engine)->submit(request, sinks.back());
    if (!id.ok()) die(id.status());
  }
  for (const auto& sink : sinks) sink->wait();
  result.wall_s = absl::ToDoubleSeconds(absl::Now() - start);
  for (const auto& sink : sinks) {
    result.timings.push_back(sink->timing(start));
    result.outputs.push_back(sink->take_tokens());
  }
  result.state = (*engine)->state();
  return result;
}

std::vector<TokenId> held_out_tokens(const std::string& model_dir) {
  auto tokenizer = Tokenizer::load(model_dir);
  if (!tokenizer.ok()) die(tokenizer.status());
  std::ifstream file(model_dir + "/held_out.txt", std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  auto tokens = tokenizer->encode(text.str(), {});
  if (!tokens.ok()) die(tokens.status());
  if (tokens->empty()) die(absl::NotFoundError(model_dir + "/held_out.txt is missing or empty"));
  return *std::move(tokens);
}

std::vector<TokenId> window(const std::vector<TokenId>& tokens, int64_t start, int64_t count) {
  std::vector<TokenId> result(count);
  for (int64_t i = 0; i < count; ++i) result[i] = tokens[(start + i) % std::ssize(tokens)];
  return result;
}

}  // namespace dhs::bench
