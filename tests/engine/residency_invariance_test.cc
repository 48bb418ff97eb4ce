// Output bits do not depend on residency mode, memory pressure, chunking, batching or arrival
// order.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine_client.h"

namespace dhs {
namespace {

struct World {
  const char* name;
  ResidencyMode mode = ResidencyMode::kAdaptive;
  int64_t memory_kib = 24 << 10;
  int max_batched_tokens = 256;
  int max_running = 8;
  bool reversed = false;
  RowFormat row_format = RowFormat::kBf16;
};

// Eight requests of mixed lengths, four of them sampled; contexts are up to 6 times the top-k of
// 256.
std::vector<GenerateRequest> requests() {
  const std::vector<int64_t> lengths = {700, 90, 1500, 257, 64, 1100, 400, 256};
  std::vector<GenerateRequest> all;
  for (size_t i = 0; i < lengths.size(); ++i) {
    GenerateRequest request;
    request.prompt = some_prompt(static_cast<uint32_t>(100 + i), lengths[i]);
    request.sampling.max_tokens = 12;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = true;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = 1000 + i;
    all.push_back(std::move(request));
  }
  return all;
}

struct Outcome {
  std::vector<std::string> fingerprints;
  EngineState state;
};

Outcome run(const World& world) {
  EngineConfig config = demo_config();
  config.residency.mode = world.mode;
  config.residency.fixed_rows_per_request = 384;
  config.device.memory_bytes = world.memory_kib << 10;
  config.scheduler.max_batched_tokens = world.max_batched_tokens;
  config.scheduler.max_running = world.max_running;
  config.kv.row_format = world.row_format;
  config.kv.index_format = world.row_format;
  auto engine = start_engine(config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  std::vector<GenerateRequest> all = requests();
  if (world.reversed) std::reverse(all.begin(), all.end());
  auto outputs = generate_all(**engine, all);
  if (world.reversed) std::reverse(outputs.begin(), outputs.end());
  Outcome outcome;
  for (const auto& output : outputs) outcome.fingerprints.push_back(fingerprint(output));
  outcome.state = (*engine)->state();
  return outcome;
}

void expect_equal(const Outcome& expected, const Outcome& actual, const World& world) {
  ASSERT_EQ(actual.fingerprints.size(), expected.fingerprints.size()) << world.name;
  for (size_t i = 0; i < expected.fingerprints.size(); ++i) {
    EXPECT_EQ(actual.fingerprints[i], expected.fingerprints[i]) << world.name << ", request " << i;
  }
}

class ResidencyInvariance : public testing::TestWithParam<RowFormat> {};

TEST_P(ResidencyInvariance, the_same_bits_under_every_mode_pressure_chunking_and_order) {
  const World reference{
      .name = "everything resident", .memory_kib = 48 << 10, .row_format = GetParam()};
  const Outcome expected = run(reference);
  ASSERT_EQ(expected.fingerprints.size(), 8u);

  // The least arena holds the longest request alone: 25, 28 or 75 chunks of 64 KiB.
  std::vector<World> worlds = {
      {.name = "resident, all fits", .mode = ResidencyMode::kResident},
      {.name = "resident, half", .mode = ResidencyMode::kResident, .memory_kib = 8 << 10},
      {.name = "resident, least", .mode = ResidencyMode::kResident, .memory_kib = 4800},
      {.name = "fixed", .mode = ResidencyMode::kFixed, .memory_kib = 12 << 10},
      {.name = "fixed, tight", .mode = ResidencyMode::kFixed, .memory_kib = 4 << 10},
      {.name = "fixed, least", .mode = ResidencyMode::kFixed, .memory_kib = 1792},
      {.name = "adaptive, half", .memory_kib = 10 << 10},
      {.name = "adaptive, quarter", .memory_kib = 5 << 10},
      {.name = "adaptive, least", .memory_kib = 1600},
      {.name = "one at a time", .max_running = 1},
      {.name = "one token a step", .memory_kib = 1600, .max_batched_tokens = 1, .max_running = 1},
      {.name = "chunks of 8", .max_batched_tokens = 8},
      {.name = "chunks of 37, tight", .memory_kib = 4 << 10, .max_batched_tokens = 37},
      {.name = "whole prompts", .max_batched_tokens = 2048},
      {.name = "reversed arrival, tight", .memory_kib = 4 << 10, .reversed = true},
  };
  int64_t most_fetched = 0;
  for (World& world : worlds) {
    world.row_format = GetParam();
    if (GetParam() == RowFormat::kF32) world.memory_kib *= 2;  // rows and keys are twice as large
    const Outcome actual = run(world);
    expect_equal(expected, actual, world);
    most_fetched = std::max(most_fetched, num_fetched(actual.state));
  }
  // Nothing is proven unless rows really came back from the host.
  EXPECT_GT(most_fetched, 10'000);
  EXPECT_LT(num_fetched(expected.state), most_fetched / 10);
}

INSTANTIATE_TEST_SUITE_P(RowFormats, ResidencyInvariance,
                         testing::Values(RowFormat::kBf16, RowFormat::kFp8), [](const auto& info) {
                           return info.param == RowFormat::kBf16 ? "bf16" : "fp8";
                         });

// One token per step from the first on: the slowest and simplest way to compute a prompt.
TEST(ResidencyInvariance, one_token_per_step_gives_the_bits_of_one_prefill) {
  GenerateRequest request;
  request.prompt = some_prompt(5, 300);
  request.sampling.max_tokens = 8;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  std::vector<std::string> prints;
  for (int max_batched_tokens : {1, 512}) {
    EngineConfig config = demo_config();
    config.scheduler.max_running = 1;
    config.scheduler.max_batched_tokens = max_batched_tokens;
    auto engine = start_engine(config);
    ASSERT_TRUE(engine.ok()) << engine.status();
    prints.push_back(fingerprint(generate_all(**engine, {request}).at(0)));
  }
  EXPECT_EQ(prints[0], prints[1]);
}

}  // namespace
}  // namespace dhs
