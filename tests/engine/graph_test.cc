// Decode steps on a device with graphs: captured once per batch bucket, replayed with other data.
// A captured step can neither allocate nor wait for the device: the capture would fail.
#include <gtest/gtest.h>

#include <deque>

#include "engine/model_executor.h"
#include "engine_client.h"

namespace dhs {
namespace {

EngineConfig config(BackendKind backend) {
  EngineConfig config = demo_config();
  config.model.path = std::string(DHS_SOURCE_DIR) + "/tests/golden/model/glm_share";
  config.model.max_context = 256;
  config.kv.row_format = RowFormat::kF32;
  config.kv.index_format = RowFormat::kF32;
  config.device.backend = backend;
  config.device.memory_bytes = 6 << 20;
  config.device.chunk_bytes = 64 << 10;
  config.device.scratch_bytes = 4 << 20;
  config.host.pool_bytes = 8 << 20;
  config.scheduler.max_running = 12;
  config.scheduler.max_batched_tokens = 32;
  return config;
}

template <class T>
T value_of(absl::StatusOr<T> result) {
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

// A scheduler and an executor without the engine's threads.
class Driver {
 public:
  explicit Driver(BackendKind backend) {
    const EngineConfig settings = config(backend);
    const EnginePlan plan = value_of(make_plan(settings));
    kv_ = std::make_unique<KvManager>(plan.geometry, plan.capacity, settings.residency);
    executor_ = value_of(
        ModelExecutor::load(value_of(open_device(settings.device)), nullptr, settings, plan));
    scheduler_ = std::make_unique<Scheduler>(settings.scheduler, std::vector<KvManager*>{kv_.get()},
                                             std::vector<TokenId>{});
  }

  void enqueue(uint64_t request, int64_t prompt_tokens, int32_t max_tokens) {
    GenerateRequest generate;
    for (TokenId token : some_prompt(static_cast<uint32_t>(request), prompt_tokens)) {
      generate.prompt.push_back(token % 256);
    }
    generate.sampling.max_tokens = max_tokens;
    generate.sampling.temperature = 0;
    generate.sampling.seed = request;
    scheduler_->enqueue(RequestId(request), std::move(generate));
  }

  std::map<uint64_t, std::vector<TokenId>> run() {
    std::map<uint64_t, std::vector<TokenId>> tokens;
    std::deque<StepPlan> in_flight;
    while (!scheduler_->idle() || !in_flight.empty()) {
      std::vector<RequestUpdate> updates;
      in_flight.push_back(scheduler_->plan(absl::UnixEpoch(), updates));
      executor_->submit(in_flight.back());
      const bool is_last = !in_flight.back().has_work();
      while (!in_flight.empty() &&
             (is_last || std::ssize(in_flight) >= executor_->max_in_flight())) {
        scheduler_->commit(in_flight.front(), value_of(executor_->collect()), updates);
        in_flight.pop_front();
      }
      for (const RequestUpdate& update : updates) {
        for (const TokenOutput& output : update.tokens) {
          tokens[update.request.value].push_back(output.token);
        }
      }
    }
    return tokens;
  }

  const ModelExecutor& executor() const { return *executor_; }

 private:
  std::unique_ptr<KvManager> kv_;
  std::unique_ptr<ModelExecutor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
};

// Batches that shrink as requests end: ten, nine, then down to one, with padded rows in between.
void enqueue_staggered(Driver& driver) {
  for (uint64_t request = 1; request <= 10; ++request) {
    driver.enqueue(request, 3, static_cast<int32_t>(request > 1 ? 6 + 3 * (request % 3) : 18));
  }
}

TEST(Graphs, replay_decode_steps_with_the_tokens_of_a_device_without_graphs) {
  Driver cpu(BackendKind::kCpu), cuda(BackendKind::kCuda);
  enqueue_staggered(cpu);
  enqueue_staggered(cuda);
  EXPECT_EQ(cuda.run(), cpu.run());
  EXPECT_EQ(cpu.executor().num_graph_launches(), 0);
  EXPECT_GT(cuda.executor().num_graph_launches(), 3);
}

}  // namespace
}  // namespace dhs
