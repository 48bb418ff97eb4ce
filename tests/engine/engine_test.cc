#include "dhisparse/engine.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "engine/engine_loop.h"
#include "engine_client.h"

namespace dhs {
namespace {

std::unique_ptr<Engine> start(const EngineConfig& config) {
  auto engine = start_engine(config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

GenerateRequest request_of(int64_t prompt_tokens, int32_t max_tokens) {
  GenerateRequest request;
  request.prompt = some_prompt(1, prompt_tokens);
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

TEST(Engine, generates_the_tokens_asked_for_and_frees_everything) {
  const auto engine = start(demo_config());
  ASSERT_NE(engine, nullptr);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(request_of(40, 9), sink).ok());
  const Finished finished = sink->wait();
  EXPECT_EQ(finished.reason, FinishReason::kLength);
  EXPECT_EQ(finished.usage.prompt_tokens, 40);
  EXPECT_EQ(finished.usage.completion_tokens, 9);
  EXPECT_EQ(sink->tokens().size(), 9u);
  // 48 query rows, each selecting every visible row, in 4 index groups.
  EXPECT_EQ(finished.usage.rows_selected, 4 * 48 * 49 / 2);
  expect_all_memory_free(*engine);
}

TEST(Engine, a_seed_fixes_the_draws_and_different_seeds_differ) {
  const auto engine = start(demo_config());
  GenerateRequest request = request_of(20, 16);
  request.sampling.temperature = 1;
  request.sampling.seed = 42;
  GenerateRequest other = request;
  other.sampling.seed = 43;
  const auto outputs = generate_all(*engine, {request, request, other});
  EXPECT_EQ(fingerprint(outputs[0]), fingerprint(outputs[1]));
  EXPECT_NE(fingerprint(outputs[0]), fingerprint(outputs[2]));
}

TEST(Engine, a_stop_token_ends_the_request_and_is_the_last_token) {
  const auto engine = start(demo_config());
  const auto plain = generate_all(*engine, {request_of(20, 12)}).at(0);
  GenerateRequest request = request_of(20, 12);
  request.sampling.stop_token_ids = {plain[5].token};
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(request, sink).ok());
  const Finished finished = sink->wait();
  EXPECT_EQ(finished.reason, FinishReason::kStop);
  EXPECT_EQ(finished.stop_token, plain[5].token);
  EXPECT_EQ(sink->tokens().back().token, plain[5].token);
  EXPECT_LE(sink->tokens().size(), 6u);
}

TEST(Engine, min_tokens_keeps_stop_tokens_from_being_drawn) {
  const auto engine = start(demo_config());
  const auto plain = generate_all(*engine, {request_of(20, 4)}).at(0);
  GenerateRequest request = request_of(20, 8);
  request.sampling.stop_token_ids = {plain[0].token};
  request.sampling.min_tokens = 5;
  const auto output = generate_all(*engine, {request}).at(0);
  ASSERT_GE(output.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_NE(output[i].token, plain[0].token) << i;
}

TEST(Engine, cancel_ends_a_running_request_and_frees_every_tier) {
  const auto engine = start(demo_config());
  auto sink = std::make_shared<CollectingSink>();
  const auto id = engine->submit(request_of(100, 1900), sink);
  ASSERT_TRUE(id.ok());
  sink->wait_for_tokens(3);
  engine->cancel(*id);
  const int64_t steps_at_cancel = engine->state().steps;
  EXPECT_EQ(sink->wait().reason, FinishReason::kCancelled);
  // The step that runs when the cancel arrives, and one in case its state was not published yet.
  EXPECT_LE(engine->state().steps, steps_at_cancel + 2);
  EXPECT_LT(sink->tokens().size(), 1900u);
  expect_all_memory_free(*engine);
  engine->cancel(*id);             // again: ignored
  engine->cancel(RequestId(999));  // unknown: ignored
  EXPECT_EQ(generate_all(*engine, {request_of(10, 2)}).at(0).size(), 2u);
  EXPECT_EQ(sink->num_finished(), 1);
}

TEST(Engine, a_cancel_right_after_submit_is_not_lost) {
  const auto engine = start(demo_config());
  for (int i = 0; i < 50; ++i) {
    auto sink = std::make_shared<CollectingSink>();
    const auto id = engine->submit(request_of(100, 1900), sink);
    ASSERT_TRUE(id.ok());
    engine->cancel(*id);
    EXPECT_EQ(sink->wait().reason, FinishReason::kCancelled);
  }
  expect_all_memory_free(*engine);
}

TEST(Engine, a_deadline_ends_the_request_within_a_step) {
  const auto engine = start(demo_config());
  GenerateRequest request = request_of(100, 1900);
  request.deadline = absl::Now() + absl::Milliseconds(200);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(request, sink).ok());
  EXPECT_EQ(sink->wait().reason, FinishReason::kDeadline);
  expect_all_memory_free(*engine);
}

TEST(Engine, bad_requests_name_value_and_limit_and_leave_the_engine_serving) {
  const auto engine = start(demo_config());
  auto submit = [&](GenerateRequest request) {
    return engine->submit(std::move(request), std::make_shared<CollectingSink>()).status();
  };
  EXPECT_EQ(submit(request_of(0, 5)).message(), "the prompt has no tokens; at least 1 is needed");
  GenerateRequest outside = request_of(3, 5);
  outside.prompt[1] = 4096;
  EXPECT_EQ(submit(outside).message(), "prompt token 4096 is outside the vocabulary (0 to 4095)");
  EXPECT_EQ(submit(request_of(2000, 49)).message(),
            "2000 prompt tokens + max_tokens 49 = 2049 exceeds the context of 2048 tokens; shorten "
            "one of them");
  GenerateRequest hot = request_of(3, 5);
  hot.sampling.temperature = -1;
  EXPECT_EQ(submit(hot).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(generate_all(*engine, {request_of(10, 2)}).at(0).size(), 2u);
}

TEST(Engine, a_request_larger_than_the_machine_is_refused_not_queued_forever) {
  EngineConfig config = demo_config();
  config.host.pool_bytes = int64_t{2} << 20;
  const auto engine = start(config);
  const absl::Status status =
      engine->submit(request_of(1900, 100), std::make_shared<CollectingSink>()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("host blocks"), std::string::npos) << status;
}

TEST(Engine, a_full_queue_refuses_with_the_limit) {
  EngineConfig config = demo_config();
  config.scheduler.max_running = 1;
  config.scheduler.max_queued_requests = 2;
  const auto engine = start(config);
  absl::Status refused;
  std::vector<RequestId> ids;
  for (int i = 0; i < 8 && refused.ok(); ++i) {
    const auto id = engine->submit(request_of(100, 1900), std::make_shared<CollectingSink>());
    refused = id.status();
    if (id.ok()) ids.push_back(*id);
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("scheduler.max_queued_requests"), std::string::npos) << refused;
  EXPECT_LE(ids.size(), 4u);
  for (RequestId id : ids) engine->cancel(id);
}

TEST(Engine, drain_finishes_what_runs_and_refuses_what_comes) {
  const auto engine = start(demo_config());
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(request_of(50, 30), sink).ok());
  std::thread drainer([&] { engine->drain(absl::Seconds(60)); });
  drainer.join();
  EXPECT_EQ(sink->wait().reason, FinishReason::kLength);
  EXPECT_EQ(engine->submit(request_of(5, 5), sink).status().code(), absl::StatusCode::kUnavailable);
}

TEST(Engine, a_drain_that_runs_out_of_time_cancels_the_rest) {
  const auto engine = start(demo_config());
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(request_of(100, 1900), sink).ok());
  engine->drain(absl::Milliseconds(50));
  EXPECT_EQ(sink->wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(sink->num_finished(), 1);
  EXPECT_EQ(engine->state().running_requests, 0);
  EXPECT_EQ(engine->state().finished_requests, 1);
  EXPECT_EQ(engine->state().host_used_bytes, 0);
}

TEST(Engine, more_requests_than_memory_wait_and_all_finish) {
  EngineConfig config = demo_config();
  config.device.memory_bytes = int64_t{3} << 20;
  const auto engine = start(config);
  std::vector<GenerateRequest> requests(12, request_of(500, 6));
  const auto outputs = generate_all(*engine, requests);
  for (const auto& output : outputs) EXPECT_EQ(fingerprint(output), fingerprint(outputs[0]));
  const EngineState state = engine->state();
  EXPECT_LT(state.peak_running_requests, 8);
  EXPECT_EQ(state.finished_requests, 12);
}

TEST(Engine, many_threads_may_submit_cancel_and_read_state) {
  const auto engine = start(demo_config());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 6; ++i) {
        auto sink = std::make_shared<CollectingSink>();
        const auto id = engine->submit(request_of(30 + t, 20), sink);
        ASSERT_TRUE(id.ok()) << id.status();
        if (i % 3 == 0) engine->cancel(*id);
        EXPECT_GE(engine->state().running_requests, 0);
        sink->wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine->state().finished_requests, 24);
  expect_all_memory_free(*engine);
}

// Draws token 1 for everyone; fails the steps it is told to.
class FlakyExecutor final : public Executor {
 public:
  explicit FlakyExecutor(int max_in_flight) : max_in_flight_(max_in_flight) {}

  int max_in_flight() const override { return max_in_flight_; }
  void submit(const StepPlan& plan) override {
    results_.push_back(StepResult{});
    for (const SequenceWork& work : plan.ranks.at(0).work) {
      SequenceResult sequence;
      if (work.wants_token) sequence.tokens.push_back({1, 0.0f, {}});
      results_.back()->sequences.push_back(std::move(sequence));
    }
    if (plan.has_work() && ++num_steps_ == 3) {
      results_.back() = absl::InternalError("the device fell over");
    }
  }
  absl::StatusOr<StepResult> collect() override {
    absl::StatusOr<StepResult> result = std::move(results_.front());
    results_.pop_front();
    return result;
  }
  void describe(EngineState& state) const override { state.device = "flaky"; }

 private:
  const int max_in_flight_;
  std::deque<absl::StatusOr<StepResult>> results_;
  int num_steps_ = 0;
};

void expect_survives_a_failed_step(int max_in_flight) {
  const std::vector<int32_t> layers = {1, 2};
  std::vector<std::unique_ptr<KvManager>> kv;
  kv.push_back(std::make_unique<KvManager>(make_geometry(layers, 64, 4096, 16),
                                           KvCapacity{64, 64, 64 << 10}, ResidencyConfig{}));
  EngineLoop engine(demo_config(), {.name = "none", .max_context = 512, .vocab_size = 4096},
                    std::move(kv), std::make_unique<FlakyExecutor>(max_in_flight));
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine.submit(request_of(5, 100), sink).ok());
  const Finished finished = sink->wait();
  EXPECT_EQ(finished.reason, FinishReason::kError);
  EXPECT_EQ(finished.error.message(), "the device fell over");
  EXPECT_EQ(sink->tokens().size(), 2u);
  EXPECT_EQ(generate_all(engine, {request_of(5, 7)}).at(0).size(), 7u);
  EXPECT_EQ(engine.state().host_used_bytes, 0);
}

TEST(EngineLoop, a_failed_step_ends_its_requests_with_the_error_and_the_engine_goes_on) {
  expect_survives_a_failed_step(1);
}

TEST(EngineLoop, a_failed_step_takes_along_only_its_requests_when_another_is_queued_behind) {
  expect_survives_a_failed_step(2);
}

TEST(StartEngine, refuses_what_cannot_work_and_says_why) {
  EngineConfig config = demo_config();
  config.model.max_context = 10000;
  EXPECT_EQ(start_engine(config).status().message(),
            "model.max_context is 10000, the checkpoint's max_position_embeddings is 8192");
  config = demo_config();
  config.model.max_context = 1;
  EXPECT_EQ(start_engine(config).status().message(),
            "model.max_context is 1; a prompt and a completion need at least 2 tokens");
  config = demo_config();
  config.device.memory_bytes = int64_t{16} << 40;
  config.device.chunk_bytes = 4096;
  EXPECT_EQ(start_engine(config).status().code(), absl::StatusCode::kInvalidArgument);
  config = demo_config();
  config.device.chunk_bytes = 16 << 10;
  EXPECT_NE(start_engine(config).status().message().find("device.chunk is 16384 bytes"),
            std::string::npos);
  config = demo_config();
  config.device.chunk_bytes = (64 << 10) + 8;
  EXPECT_NE(start_engine(config).status().message().find("no multiple of 256"), std::string::npos);
  config = demo_config();
  config.device.backend = BackendKind::kCuda;
  EXPECT_EQ(start_engine(config).status().code(), absl::StatusCode::kFailedPrecondition);
  config = demo_config();
  config.model.path = "/nonexistent";
  EXPECT_EQ(start_engine(config).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace dhs
