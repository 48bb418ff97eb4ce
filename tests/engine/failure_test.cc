// What becomes of an engine that can run no step any more.
#include <gtest/gtest.h>

#include "engine/engine_loop.h"
#include "engine_client.h"

namespace dhs {
namespace {

// Every step fails, as it does when a rank is lost.
class LostRanks final : public Executor {
 public:
  void submit(const StepPlan& plan) override { is_work_ = plan.has_work(); }
  absl::StatusOr<StepResult> collect() override {
    if (is_work_) return absl::AbortedError("rank 1 is gone");
    return StepResult();
  }
  void describe(EngineState& /*state*/) const override {}

 private:
  bool is_work_ = false;
};

std::unique_ptr<EngineLoop> engine_without_ranks() {
  const std::vector<int32_t> layers = {1, 2};
  std::vector<std::unique_ptr<KvManager>> kv;
  kv.push_back(std::make_unique<KvManager>(make_geometry(layers, 64, 4096, 16),
                                           KvCapacity{64, 64, 64 << 10}, ResidencyConfig{}));
  ModelInfo model{.name = "none", .max_context = 512, .vocab_size = 4096};
  return std::make_unique<EngineLoop>(demo_config(), std::move(model), std::move(kv),
                                      std::make_unique<LostRanks>());
}

GenerateRequest some_request() {
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  request.sampling.max_tokens = 2;
  return request;
}

TEST(EngineFailure, is_told_once_to_whoever_watches_and_stays_in_the_state) {
  const auto engine = engine_without_ranks();
  int num_early = 0;
  int num_late = 0;
  engine->watch_failure([&](const absl::Status& failure) {
    EXPECT_EQ(failure.message(), "rank 1 is gone");
    ++num_early;
  });
  EXPECT_EQ(engine->state().failure, "");
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(some_request(), sink).ok());
  EXPECT_EQ(sink->wait().reason, FinishReason::kError);
  engine->watch_failure([&](const absl::Status&) { ++num_late; });
  EXPECT_EQ(num_early, 1);
  EXPECT_EQ(num_late, 1) << "it has happened already";
  EXPECT_EQ(engine->state().failure, "rank 1 is gone");
}

TEST(EngineFailure, refuses_requests_and_counts_them) {
  const auto engine = engine_without_ranks();
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(some_request(), sink).ok());
  sink->wait();
  EXPECT_EQ(engine->submit(some_request(), std::make_shared<CollectingSink>()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine->state().refused_unavailable, 1);
  EXPECT_EQ(engine->state().request_figures.finished[static_cast<size_t>(FinishReason::kError)], 1);
}

TEST(EngineFailure, nobody_is_told_after_watching_has_ended) {
  const auto engine = engine_without_ranks();
  int num_told = 0;
  engine->watch_failure([&](const absl::Status&) { ++num_told; });
  engine->watch_failure(nullptr);
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(engine->submit(some_request(), sink).ok());
  sink->wait();
  EXPECT_EQ(num_told, 0);
}

}  // namespace
}  // namespace dhs
