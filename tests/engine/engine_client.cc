#include "engine_client.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <random>
#include <thread>

namespace dhs {

void CollectingSink::on_tokens(const std::vector<TokenOutput>& tokens) {
  std::lock_guard lock(mutex_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  changed_.notify_all();
}

void CollectingSink::on_finished(const Finished& finished) {
  std::lock_guard lock(mutex_);
  finished_ = finished;
  ++num_finished_;
  changed_.notify_all();
}

Finished CollectingSink::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished_.has_value(); });
  return *finished_;
}

void CollectingSink::wait_for_tokens(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_.has_value() || tokens_.size() >= count; });
}

std::vector<TokenOutput> CollectingSink::tokens() const {
  std::lock_guard lock(mutex_);
  return tokens_;
}

int CollectingSink::num_finished() const {
  std::lock_guard lock(mutex_);
  return num_finished_;
}

EngineConfig demo_config() {
  EngineConfig config;
  config.model.path = std::string(DHS_SOURCE_DIR) + "/tests/models/demo";
  config.model.name = "demo";
  config.model.max_context = 2048;
  config.device.memory_bytes = int64_t{24} << 20;
  config.device.chunk_bytes = int64_t{64} << 10;
  config.host.pool_bytes = int64_t{64} << 20;
  config.scheduler.max_running = 8;
  config.scheduler.max_batched_tokens = 256;
  return config;
}

std::vector<TokenId> some_prompt(uint32_t seed, int64_t num_tokens) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt(num_tokens);
  for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 4000);
  return prompt;
}

std::vector<std::vector<TokenOutput>> generate_all(Engine& engine,
                                                   const std::vector<GenerateRequest>& requests) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const GenerateRequest& request : requests) {
    sinks.push_back(std::make_shared<CollectingSink>());
    const auto id = engine.submit(request, sinks.back());
    EXPECT_TRUE(id.ok()) << id.status();
    if (!id.ok()) return {};
  }
  std::vector<std::vector<TokenOutput>> outputs;
  for (const auto& sink : sinks) {
    sink->wait();
    outputs.push_back(sink->tokens());
  }
  return outputs;
}

int64_t num_fetched(const EngineState& state) {
  int64_t total = 0;
  for (const GroupState& group : state.groups) total += group.rows_missed;
  return total;
}

std::string fingerprint(const std::vector<TokenOutput>& tokens) {
  std::string text;
  for (const TokenOutput& output : tokens) {
    absl::StrAppend(&text, output.token, ":", absl::Hex(std::bit_cast<uint32_t>(output.logprob)),
                    " ");
  }
  return text;
}

void expect_all_memory_free(const Engine& engine) {
  for (int i = 0; i < 1000; ++i) {
    const EngineState state = engine.state();
    if (state.host_used_bytes == 0 && state.device_index_bytes == 0 &&
        state.device_row_cache_bytes == 0) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const EngineState state = engine.state();
  FAIL() << "host " << state.host_used_bytes << ", index " << state.device_index_bytes << ", rows "
         << state.device_row_cache_bytes << " bytes still held";
}

}  // namespace dhs
