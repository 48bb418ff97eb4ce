// Drafts change how fast tokens come, never which: greedy output has the bits of plain decoding,
// sampled output has them too where drafts are chosen, not drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>

#include "dhisparse/tokenizer.h"
#include "engine_client.h"

namespace dhs {
namespace {

constexpr int kNumPrompts = 200;

struct World {
  const char* name;
  DraftKind kind = DraftKind::kNone;
  int max_tokens = 0;
  ResidencyMode mode = ResidencyMode::kAdaptive;
  int64_t memory_kib = 24 << 10;
  int max_batched_tokens = 256;
  int max_running = 16;
  bool prefix_cache = true;
};

std::string draft_path(DraftKind kind) {
  const std::string demo = DHS_SOURCE_DIR "/tests/models/demo/";
  switch (kind) {
    case DraftKind::kDflash2:
      return demo + "dflash2";
    case DraftKind::kDspark:
      return demo + "dspark";
    case DraftKind::kMtp:
      return demo + "mtp";
    default:
      return "";
  }
}

EngineConfig config_of(const World& world) {
  EngineConfig config = demo_config();
  config.draft.kind = world.kind;
  config.draft.path = draft_path(world.kind);
  config.draft.max_tokens = world.max_tokens;
  config.residency.mode = world.mode;
  config.residency.fixed_rows_per_request = 512;
  config.device.memory_bytes = world.memory_kib << 10;
  config.scheduler.max_batched_tokens = world.max_batched_tokens;
  config.scheduler.max_running = world.max_running;
  config.kv.prefix_cache = world.prefix_cache;
  return config;
}

// Passages of a text that the demo model was not trained on. Every third begins as the one before
// it does, for one host block and a half, so that it hits the prefix cache.
std::vector<GenerateRequest> held_out_requests(float temperature) {
  std::ifstream file(DHS_SOURCE_DIR "/tests/models/demo/held_out.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto tokenizer = Tokenizer::load(DHS_SOURCE_DIR "/tests/models/demo");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<TokenId> ids = tokenizer->encode(text).value();
  std::vector<GenerateRequest> all;
  for (int i = 0; i < kNumPrompts; ++i) {
    const int64_t first = 120 * (i % 3 == 2 ? i - 1 : i);
    const int64_t length = i % 20 == 7 ? 400 : 24 + (i * 37) % 110 + (i % 3 == 2 ? 80 : 0);
    GenerateRequest request;
    request.prompt.assign(ids.begin() + first, ids.begin() + first + length);
    request.sampling.max_tokens = 8 + i % 17;
    request.sampling.min_tokens = i % 5 == 0 ? 6 : 0;
    request.sampling.temperature = temperature;
    request.sampling.top_p = 0.9f;
    request.sampling.seed = 900 + i;
    request.sampling.logprobs = true;
    request.sampling.is_repeatable = true;
    if (i % 4 == 1) request.sampling.stop_token_ids = {ids[static_cast<size_t>(i)], 266, 300};
    all.push_back(std::move(request));
  }
  return all;
}

struct Outcome {
  std::vector<std::string> fingerprints;
  EngineState state;
};

Outcome run(const World& world, const std::vector<GenerateRequest>& requests) {
  auto engine = start_engine(config_of(world));
  EXPECT_TRUE(engine.ok()) << world.name << ": " << engine.status();
  if (!engine.ok()) return {};
  Outcome outcome;
  for (const auto& output : generate_all(**engine, requests)) {
    outcome.fingerprints.push_back(fingerprint(output));
  }
  outcome.state = (*engine)->state();
  expect_all_memory_free(**engine);
  return outcome;
}

void expect_same_outputs(const World& world, const Outcome& plain,
                         const std::vector<GenerateRequest>& requests) {
  const Outcome got = run(world, requests);
  ASSERT_EQ(got.fingerprints.size(), plain.fingerprints.size()) << world.name;
  for (size_t i = 0; i < plain.fingerprints.size(); ++i) {
    ASSERT_EQ(got.fingerprints[i], plain.fingerprints[i]) << world.name << ", prompt " << i;
  }
  // Nothing is proven unless drafts were verified, and some of each kind of end met.
  EXPECT_GT(got.state.drafts.verified, 500) << world.name;
  EXPECT_GT(got.state.drafts.accepted, 50) << world.name;
  EXPECT_LT(got.state.drafts.accepted, got.state.drafts.verified) << world.name;
  testing::Test::RecordProperty(std::string(world.name) + " verified",
                                std::to_string(got.state.drafts.verified));
}

class Speculation : public testing::TestWithParam<DraftKind> {};

TEST_P(Speculation, greedy_output_has_the_bits_of_plain_decoding) {
  const std::vector<GenerateRequest> requests = held_out_requests(0);
  const Outcome plain = run({.name = "plain"}, requests);
  ASSERT_EQ(std::ssize(plain.fingerprints), kNumPrompts);
  const DraftKind kind = GetParam();
  const std::vector<World> worlds = {
      {.name = "fixed length", .kind = kind, .max_tokens = 7},
      {.name = "adaptive length, tight", .kind = kind, .memory_kib = 3 << 10},
      {.name = "fixed rows", .kind = kind, .max_tokens = 3, .mode = ResidencyMode::kFixed},
      {.name = "resident", .kind = kind, .max_tokens = 5, .mode = ResidencyMode::kResident},
      {.name = "one at a time", .kind = kind, .max_tokens = 7, .max_running = 1},
      {.name = "small steps", .kind = kind, .max_tokens = 7, .max_batched_tokens = 24},
      {.name = "no prefix cache", .kind = kind, .max_tokens = 7, .prefix_cache = false},
  };
  for (const World& world : worlds) expect_same_outputs(world, plain, requests);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Speculation,
                         testing::Values(DraftKind::kDflash2, DraftKind::kDspark, DraftKind::kMtp,
                                         DraftKind::kNgram),
                         [](const auto& info) {
                           switch (info.param) {
                             case DraftKind::kDflash2:
                               return "dflash2";
                             case DraftKind::kDspark:
                               return "dspark";
                             case DraftKind::kMtp:
                               return "mtp";
                             default:
                               return "ngram";
                           }
                         });

// Chosen because they always are, or because the request is to be repeatable.
TEST(Speculation, sampled_output_has_the_bits_of_plain_decoding_where_drafts_are_chosen) {
  const std::vector<GenerateRequest> requests = held_out_requests(0.8f);
  const Outcome plain = run({.name = "plain"}, requests);
  expect_same_outputs({.name = "ngram, sampled", .kind = DraftKind::kNgram, .max_tokens = 4}, plain,
                      requests);
  expect_same_outputs({.name = "mtp, sampled", .kind = DraftKind::kMtp, .max_tokens = 4}, plain,
                      requests);
  expect_same_outputs({.name = "dflash2, sampled, adaptive", .kind = DraftKind::kDflash2}, plain,
                      requests);
  expect_same_outputs({.name = "dspark, sampled", .kind = DraftKind::kDspark, .max_tokens = 5},
                      plain, requests);
}

}  // namespace
}  // namespace dhs
