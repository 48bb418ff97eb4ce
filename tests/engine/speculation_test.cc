// Drafts change how fast tokens come, never which: greedy output has the bits of plain decoding,
// sampled output has them too where drafts are chosen, not drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "dhisparse/tokenizer.h"
#include "drafts_later.h"
#include "engine_client.h"

namespace dhs {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
  bool is_tight = false;  // so that not all run at once
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

// A text that the demo model was not trained on.
std::vector<TokenId> held_out_text() {
  std::ifstream file(DHS_SOURCE_DIR "/tests/models/demo/held_out.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto tokenizer = Tokenizer::load(DHS_SOURCE_DIR "/tests/models/demo");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer->encode(text).value();
}

// Passages of it. Every third begins as the one before it does, so that some that share a host
// block with one before hit the prefix cache.
std::vector<GenerateRequest> held_out_requests(float temperature) {
  const std::vector<TokenId> ids = held_out_text();
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
  EXPECT_TRUE(world.prefix_cache || got.state.cached_prompt_tokens == 0) << world.name;
  EXPECT_TRUE(world.max_running > 1 || got.state.cached_prompt_tokens > 0) << world.name;
  if (world.is_tight) {
    EXPECT_LT(got.state.peak_running_requests, world.max_running) << world.name;
    EXPECT_GT(num_fetched(got.state), 0) << world.name;
  }
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
      {.name = "adaptive length, tight", .kind = kind, .memory_kib = 3 << 10, .is_tight = true},
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

TEST(Speculation, the_longest_draft_has_the_bits_of_plain_decoding) {
  const std::vector<GenerateRequest> requests = held_out_requests(0);
  const Outcome plain = run({.name = "plain"}, requests);
  expect_same_outputs({.name = "15 drafts", .kind = DraftKind::kNgram, .max_tokens = 15}, plain,
                      requests);
}

// The demo model's DSpark draft, but for its confidence head.
std::string dspark_without_confidence() {
  const std::filesystem::path copy =
      std::filesystem::path(testing::TempDir()) / "dspark_without_confidence";
  using std::filesystem::copy_options;
  std::filesystem::copy(draft_path(DraftKind::kDspark), copy,
                        copy_options::recursive | copy_options::overwrite_existing);
  std::ifstream file(copy / "config.json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  file.close();
  const std::string key = "\"enable_confidence_head\": ";
  text.replace(text.find(key + "true"), key.size() + 4, key + "false");
  std::ofstream(copy / "config.json") << text;
  return copy.string();
}

TEST(Speculation, refuses_what_the_draft_does_not_have) {
  EngineConfig config = config_of({.kind = DraftKind::kDflash2, .max_tokens = 8});
  absl::Status status = start_engine(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("draft.max_tokens is 8"),
                    HasSubstr("proposes at most 7; lower it or set it to auto")));
  config = config_of({.kind = DraftKind::kDspark});
  config.draft.path = dspark_without_confidence();
  config.draft.temperatures = "/sts.json";
  status = start_engine(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has no confidence head; remove draft.temperatures"));
}

// ---- What the prefix cache and parking leave of a draft's context -------------------------------

GenerateRequest long_request() {
  const std::vector<TokenId> ids = held_out_text();
  GenerateRequest request;
  request.prompt.assign(ids.begin(), ids.begin() + 200);
  request.sampling.max_tokens = 100;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

// pauses_at: after so many tokens, until the request has left the device; 0: never.
Usage usage_of(Engine& engine, const GenerateRequest& request, size_t pauses_at = 0) {
  const auto sink = std::make_shared<CollectingSink>();
  const auto id = engine.submit(request, sink);
  EXPECT_TRUE(id.ok()) << id.status();
  if (pauses_at > 0) {
    sink->wait_for_tokens(pauses_at);
    engine.set_paused(*id, true);
    while (engine.state().parked_requests == 0 && sink->num_finished() == 0) {
      std::this_thread::yield();
    }
    engine.set_paused(*id, false);
  }
  return sink->wait().usage;
}

TEST_P(Speculation, a_context_that_comes_back_from_the_host_leaves_as_many_drafts_accepted) {
  const auto engine =
      start_engine(config_of({.name = "one at a time", .kind = GetParam(), .max_tokens = 7}));
  ASSERT_TRUE(engine.ok()) << engine.status();
  GenerateRequest request = long_request();
  request.sampling.max_tokens = 400;  // so that it is paused long before its end
  const Usage cold = usage_of(**engine, request);
  const Usage hit = usage_of(**engine, request);
  EXPECT_GT(cold.drafts_accepted, 20);
  EXPECT_EQ(cold.cached_prompt_tokens, 0);
  EXPECT_EQ(hit.cached_prompt_tokens, 192);
  EXPECT_EQ(hit.drafts_verified, cold.drafts_verified);
  EXPECT_EQ(hit.drafts_accepted, cold.drafts_accepted);
  // The drafts that wait are given up, so that a few steps begin elsewhere.
  const Usage paused = usage_of(**engine, request, 16);
  EXPECT_EQ(paused.times_parked, 1);
  EXPECT_NEAR(paused.drafts_accepted, cold.drafts_accepted, 7);
}

// What a draft keeps of tokens that were decoded without it is what it keeps of a prompt: in the
// same request, and in one that takes their blocks over.
TEST_P(Speculation, drafts_behind_tokens_that_came_without_are_accepted_as_behind_a_prompt) {
  if (GetParam() == DraftKind::kNgram) GTEST_SKIP() << "it keeps nothing";
  constexpr int kNumWithout = 150;  // draws: more than two host blocks
  World world{.name = "no prefix cache", .kind = GetParam(), .max_tokens = 7};
  const auto takes_over = start_drafting_later(config_of(world), 1000);
  world.prefix_cache = false;
  const auto goes_on = start_drafting_later(config_of(world), kNumWithout);
  const auto drafts_at_once = start_engine(config_of(world));
  ASSERT_TRUE(takes_over != nullptr && goes_on != nullptr && drafts_at_once.ok());
  GenerateRequest request = long_request();
  // Greedy output repeats itself soon, and then any draft is accepted.
  request.sampling.temperature = 0.8f;
  request.sampling.seed = 11;
  request.sampling.is_repeatable = true;
  request.sampling.max_tokens = kNumWithout + 100;
  const auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(goes_on->submit(request, sink).ok());
  const Usage later = sink->wait().usage;
  const auto owner = std::make_shared<CollectingSink>();
  request.sampling.max_tokens = 500;
  ASSERT_TRUE(takes_over->submit(request, owner).ok());
  owner->wait_for_tokens(122);  // just beyond the end of a block
  // The next draw is the first one that was to propose above.
  for (int i = 0; i + 1 < kNumWithout; ++i) request.prompt.push_back(sink->tokens()[i].token);
  request.sampling.max_tokens = 101;
  const Usage taken_over = usage_of(*takes_over, request);
  const Usage expected = usage_of(**drafts_at_once, request);
  EXPECT_GT(expected.drafts_accepted, 20);
  EXPECT_EQ(later.drafts_verified, expected.drafts_verified);
  EXPECT_EQ(later.drafts_accepted, expected.drafts_accepted);
  EXPECT_EQ(taken_over.cached_prompt_tokens, 320);
  EXPECT_EQ(taken_over.drafts_verified, expected.drafts_verified);
  EXPECT_EQ(taken_over.drafts_accepted, expected.drafts_accepted);
}

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
