// Another residency and other limits while the engine works: no output bit changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine_client.h"

namespace dhs {
namespace {

using testing::HasSubstr;

std::vector<GenerateRequest> requests() {
  std::vector<GenerateRequest> all;
  for (uint32_t i = 0; i < 10; ++i) {
    GenerateRequest request;
    request.prompt = some_prompt(40 + i, 100 + 130 * (i % 7));
    request.sampling.max_tokens = 24;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = true;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = 7 + i;
    all.push_back(std::move(request));
  }
  return all;
}

EngineConfig tight_config() {
  EngineConfig config = demo_config();
  config.device.memory_bytes = int64_t{7} << 20;  // resident holds the longest request alone
  config.residency.fixed_rows_per_request = 300;
  return config;
}

std::vector<std::string> fingerprints(const std::vector<std::vector<TokenOutput>>& outputs) {
  std::vector<std::string> prints;
  for (const auto& output : outputs) prints.push_back(fingerprint(output));
  return prints;
}

// Changes everything that can change, over and over; how often it did.
int keep_reconfiguring(Engine& engine, const EngineConfig& config, const std::atomic<bool>& stop) {
  int num_done = 0;
  for (int i = 0; !stop; ++i) {
    ResidencyConfig residency = config.residency;
    residency.mode = i % 3 == 0   ? ResidencyMode::kFixed
                     : i % 3 == 1 ? ResidencyMode::kResident
                                  : ResidencyMode::kAdaptive;
    residency.fixed_rows_per_request = 257 + 300 * (i % 4);
    SchedulerConfig scheduler = config.scheduler;
    scheduler.max_running = 1 + (5 * i) % config.scheduler.max_running;
    scheduler.max_batched_tokens = std::max(scheduler.max_running, 16 << (i % 5));
    scheduler.prefill_chunk = 16 << (i % 4);
    const absl::Status status = engine.reconfigure(residency, scheduler);
    EXPECT_TRUE(status.ok()) << status;
    num_done += status.ok() ? 1 : 0;
    absl::SleepFor(absl::Milliseconds(3));
  }
  return num_done;
}

TEST(Reconfigure, under_load_changes_no_bit_of_any_output) {
  const EngineConfig config = tight_config();
  auto calm = start_engine(config);
  ASSERT_TRUE(calm.ok()) << calm.status();
  const auto expected = fingerprints(generate_all(**calm, requests()));
  calm->reset();
  auto engine = start_engine(config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  std::atomic<bool> stop = false;
  int num_done = 0;
  std::thread operator_thread([&] { num_done = keep_reconfiguring(**engine, config, stop); });
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(fingerprints(generate_all(**engine, requests())), expected) << round;
  }
  stop = true;
  operator_thread.join();
  EXPECT_GT(num_done, 10);
  const EngineState state = (*engine)->state();
  EXPECT_GT(state.parks, 0) << "nothing is proven unless requests had to make way";
  EXPECT_GT(num_fetched(state), 0);
}

// An MTP layer writes rows for what it proposes: it needs room for them, before and after.
TEST(Reconfigure, leaves_drafts_as_they_are) {
  EngineConfig config = demo_config();
  config.draft = {
      .kind = DraftKind::kMtp, .path = DHS_SOURCE_DIR "/tests/models/demo/mtp", .max_tokens = 7};
  std::vector<DraftCounts> counts;
  for (const bool is_reconfigured : {false, true}) {
    auto engine = start_engine(config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    if (is_reconfigured) {
      ASSERT_TRUE((*engine)->reconfigure(config.residency, config.scheduler).ok());
    }
    generate_all(**engine, requests());
    expect_all_memory_free(**engine);
    counts.push_back((*engine)->state().drafts);
  }
  EXPECT_GT(counts[0].accepted, 0);
  EXPECT_EQ(counts[0].verified_at, counts[1].verified_at);
  EXPECT_EQ(counts[0].accepted_at, counts[1].accepted_at);
}

TEST(Reconfigure, an_idle_engine_shows_the_change_at_once_and_serves_by_it) {
  const EngineConfig config = tight_config();
  auto engine = start_engine(config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ((*engine)->state().residency_mode, "adaptive");
  ResidencyConfig residency = config.residency;
  residency.mode = ResidencyMode::kFixed;
  SchedulerConfig scheduler = config.scheduler;
  scheduler.max_running = 2;
  scheduler.max_queued_requests = 1;
  ASSERT_TRUE((*engine)->reconfigure(residency, scheduler).ok());
  // Published by the step that follows.
  while ((*engine)->state().residency_mode != "fixed") absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ((*engine)->state().max_running, 2);
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  absl::Status refused;
  for (int i = 0; i < 8 && refused.ok(); ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    refused = (*engine)->submit(requests()[i], sinks.back()).status();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("scheduler.max_queued_requests"));
  EXPECT_GE((*engine)->state().refused_queue_full, 1);
  sinks.pop_back();
  for (const auto& sink : sinks) sink->wait();
  EXPECT_LE((*engine)->state().peak_running_requests, 2);
}

TEST(Reconfigure, what_memory_was_not_laid_out_for_needs_a_restart) {
  const EngineConfig config = tight_config();
  auto engine = start_engine(config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  SchedulerConfig scheduler = config.scheduler;
  scheduler.max_running = config.scheduler.max_running + 1;
  absl::Status status = (*engine)->reconfigure(config.residency, scheduler);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("scheduler.max_running is 9"));
  scheduler = config.scheduler;
  scheduler.max_batched_tokens = 1024;
  status = (*engine)->reconfigure(config.residency, scheduler);
  EXPECT_THAT(std::string(status.message()), HasSubstr("scheduler.max_batched_tokens is 1024"));
  EXPECT_EQ((*engine)->state().max_running, config.scheduler.max_running);
}

TEST(Reconfigure, residency_that_cannot_hold_the_longest_promised_request_is_refused) {
  EngineConfig config = tight_config();
  config.device.memory_bytes = int64_t{2} << 20;
  auto engine = start_engine(config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const int64_t promised = (*engine)->model_info().longest_request;
  ResidencyConfig residency = config.residency;
  residency.mode = ResidencyMode::kResident;
  const absl::Status status = (*engine)->reconfigure(residency, config.scheduler);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("clients were promised ", promised)));
  EXPECT_EQ((*engine)->state().residency_mode, "adaptive");
}

TEST(Reconfigure, from_resident_no_longer_requests_are_taken_than_were_promised) {
  EngineConfig config = tight_config();
  config.device.memory_bytes = int64_t{2} << 20;
  config.residency.mode = ResidencyMode::kResident;
  auto engine = start_engine(config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const int64_t promised = (*engine)->model_info().longest_request;
  ASSERT_LT(promised, config.model.max_context);
  ResidencyConfig residency = config.residency;
  residency.mode = ResidencyMode::kAdaptive;
  ASSERT_TRUE((*engine)->reconfigure(residency, config.scheduler).ok());
  GenerateRequest request;
  request.prompt = some_prompt(1, promised);
  request.sampling.max_tokens = 1;
  const auto refused = (*engine)->submit(request, std::make_shared<CollectingSink>());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  // So the way back is open.
  EXPECT_TRUE((*engine)->reconfigure(config.residency, config.scheduler).ok());
}

TEST(Reconfigure, a_stopped_engine_says_so) {
  const EngineConfig config = tight_config();
  auto engine = start_engine(config);
  ASSERT_TRUE(engine.ok()) << engine.status();
  (*engine)->drain(absl::ZeroDuration());
  EXPECT_EQ((*engine)->reconfigure(config.residency, config.scheduler).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace dhs
