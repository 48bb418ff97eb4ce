// The whole engine over the CUDA backend under emulation: device, kernels, graphs, two steps in
// flight. Its tokens are the CPU's; its bits do not depend on residency, on the batch, or on the
// order in which the emulator runs what nothing orders.
#include <gtest/gtest.h>

#include <string>

#include "drafts_later.h"
#include "engine_client.h"
#include "simt/emu/runtime.h"

namespace dhs {
namespace {

struct World {
  const char* name;
  BackendKind backend = BackendKind::kCuda;
  ResidencyMode mode = ResidencyMode::kAdaptive;
  int64_t memory_kib = 2048;
  int max_batched_tokens = 64;
  int max_running = 4;
  uint64_t stream_seed = 0;
  RowFormat row_format = RowFormat::kBf16;
  DraftConfig draft = {};
};

EngineConfig config_of(const std::string& checkpoint, const World& world) {
  EngineConfig config = demo_config();
  config.kv.row_format = world.row_format;
  config.kv.index_format = world.row_format;
  config.model.path = std::string(DHS_SOURCE_DIR) + "/tests/golden/model/" + checkpoint;
  config.model.max_context = 512;
  config.device.backend = world.backend;
  config.device.memory_bytes = world.memory_kib << 10;
  config.device.chunk_bytes = world.row_format == RowFormat::kF32 ? 32 << 10 : 16 << 10;
  config.device.scratch_bytes = 4 << 20;
  config.host.pool_bytes = 4 << 20;
  config.residency.mode = world.mode;
  config.residency.fixed_rows_per_request = 96;
  config.scheduler.max_batched_tokens = world.max_batched_tokens;
  config.scheduler.max_running = world.max_running;
  config.draft = world.draft;
  return config;
}

// Contexts of up to twice the top-k of 64; one request samples, one has biases, one penalties.
std::vector<GenerateRequest> requests(int64_t vocab_size) {
  const std::vector<int64_t> lengths = {130, 20, 64, 97};
  std::vector<GenerateRequest> all;
  for (size_t i = 0; i < lengths.size(); ++i) {
    GenerateRequest request;
    for (TokenId token : some_prompt(static_cast<uint32_t>(40 + i), lengths[i])) {
      request.prompt.push_back(static_cast<TokenId>(token % vocab_size));
    }
    request.sampling.max_tokens = 8;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = true;
    request.sampling.temperature = i == 3 ? 0.8f : 0.0f;
    request.sampling.seed = 7 + i;
    if (i == 1) request.sampling.logit_bias = {{9, -3}, {5, 2.5f}};
    if (i == 2) {
      request.sampling.repetition_penalty = 1.3f;
      request.sampling.frequency_penalty = 0.5f;
    }
    all.push_back(std::move(request));
  }
  return all;
}

struct Outcome {
  std::vector<std::string> prints;  // tokens and logprob bits
  std::vector<std::vector<TokenId>> tokens;
  EngineState state;
};

Outcome run(const std::string& checkpoint, const World& world) {
  simt::options().stream_seed = world.stream_seed;
  auto engine = start_engine(config_of(checkpoint, world));
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  Outcome outcome;
  const auto all = requests((*engine)->model_info().vocab_size);
  for (const auto& outputs : generate_all(**engine, all)) {
    outcome.prints.push_back(fingerprint(outputs));
    auto& tokens = outcome.tokens.emplace_back();
    for (const TokenOutput& output : outputs) tokens.push_back(output.token);
  }
  outcome.state = (*engine)->state();
  expect_all_memory_free(**engine);
  return outcome;
}

// In f32, where two orders of summation differ by less than two logits of this model do.
TEST(CudaEngine, draws_the_tokens_that_the_cpu_draws) {
  const World f32{.name = "cuda", .row_format = RowFormat::kF32};
  World cpu_world = f32;
  cpu_world.backend = BackendKind::kCpu;
  const Outcome cpu = run("glm_share", cpu_world);
  const Outcome cuda = run("glm_share", f32);
  ASSERT_EQ(cpu.tokens.size(), 4u);
  EXPECT_EQ(cuda.tokens, cpu.tokens);
  EXPECT_NE(cuda.state.device.find("cuda"), std::string::npos) << cuda.state.device;
}

// In bf16, on the tensor-core paths.
TEST(CudaEngine, gives_the_same_bits_under_every_mode_pressure_batch_and_stream_order) {
  const Outcome expected = run("glm_share_bf16", {.name = "all resident"});
  int64_t most_fetched = 0;
  for (const World& world : std::vector<World>{
           {.name = "adaptive, tight", .memory_kib = 288, .stream_seed = 1},
           {.name = "fixed", .mode = ResidencyMode::kFixed, .memory_kib = 384, .stream_seed = 2},
           {.name = "one at a time, small chunks",
           .mode = ResidencyMode::kResident,
           .max_batched_tokens = 24,
           .max_running = 1,
           .stream_seed = 3},
       }) {
    const Outcome actual = run("glm_share_bf16", world);
    EXPECT_EQ(actual.prints, expected.prints) << world.name;
    most_fetched = std::max(most_fetched, num_fetched(actual.state));
  }
  EXPECT_GT(most_fetched, 100) << "nothing is proven unless rows came back from the host";
}

std::string draft_dir(const std::string& name) {
  return std::string(DHS_SOURCE_DIR) + "/tests/golden/draft/" + name;
}

// The drafts of a random model are mostly wrong: what this shows is that rejected ones leave no
// trace. Verified in fixed number, so that the sampled request draws the same on both backends.
TEST(CudaEngine, drafts_change_no_token) {
  const World plain{.name = "plain", .row_format = RowFormat::kF32};
  const Outcome expected = run("glm_share", plain);
  const std::pair<DraftKind, const char*> drafts[] = {{DraftKind::kDflash, "dflash_causal"},
                                                      {DraftKind::kDflash2, "dflash2"},
                                                      {DraftKind::kDspark, "dspark_gated"}};
  uint64_t stream_seed = 11;
  for (const auto& [kind, name] : drafts) {
    SCOPED_TRACE(name);
    World world = plain;
    world.draft = {.kind = kind, .path = draft_dir(name), .max_tokens = 3};
    world.stream_seed = stream_seed++;
    world.memory_kib = 1024;
    const Outcome cuda = run("glm_share", world);
    world.backend = BackendKind::kCpu;
    const Outcome cpu = run("glm_share", world);
    EXPECT_EQ(cuda.tokens, cpu.tokens);
    EXPECT_GT(cuda.state.drafts.verified, 20);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(cuda.prints[i], expected.prints[i]) << "greedy " << i;
  }
}

TEST(CudaEngine, drafts_of_the_mtp_layer_change_no_token) {
  const std::string checkpoint = "../draft/mtp_glm";
  const World plain{.name = "plain"};
  World world{.name = "mtp", .memory_kib = 512, .stream_seed = 21};
  world.draft = {.kind = DraftKind::kMtp, .max_tokens = 2};
  const Outcome expected = run(checkpoint, plain);
  const Outcome actual = run(checkpoint, world);
  EXPECT_EQ(actual.prints, expected.prints) << "its drafts are chosen: sampled output too";
  EXPECT_GT(actual.state.drafts.verified, 20);
}

// What the draft is to keep of steps without drafts is appended later, and to the same bits.
TEST(CudaEngine, drafts_behind_steps_without_are_those_of_the_cpu) {
  GenerateRequest request = requests(256).front();
  request.sampling.max_tokens = 24;
  const std::pair<DraftKind, const char*> drafts[] = {{DraftKind::kDflash2, "dflash2"},
                                                      {DraftKind::kDspark, "dspark_gated"}};
  for (const auto& [kind, name] : drafts) {
    SCOPED_TRACE(name);
    World world{.name = "later", .row_format = RowFormat::kF32};
    world.draft = {.kind = kind, .path = draft_dir(name), .max_tokens = 3};
    std::vector<Usage> usages;
    std::vector<std::vector<TokenOutput>> tokens;
    for (const BackendKind backend : {BackendKind::kCuda, BackendKind::kCpu}) {
      world.backend = backend;
      const auto engine = start_drafting_later(config_of("glm_share", world), 12);
      ASSERT_NE(engine, nullptr);
      const auto sink = std::make_shared<CollectingSink>();
      ASSERT_TRUE(engine->submit(request, sink).ok());
      usages.push_back(sink->wait().usage);
      tokens.push_back(sink->tokens());
    }
    EXPECT_EQ(tokens[0].size(), 24u);
    for (size_t i = 0; i < tokens[0].size(); ++i) EXPECT_EQ(tokens[0][i].token, tokens[1][i].token);
    EXPECT_GT(usages[0].drafts_verified, 10);
    EXPECT_EQ(usages[0].drafts_verified, usages[1].drafts_verified);
    EXPECT_EQ(usages[0].drafts_accepted, usages[1].drafts_accepted);
  }
}

// Index keys come back from the host blocks: of a prefix that others computed, and of a request
// that was parked with a step in flight.
TEST(CudaEngine, brings_cached_and_parked_requests_back_with_the_same_bits) {
  const World world{.name = "tight", .memory_kib = 288};
  const GenerateRequest request = requests(256).front();
  simt::options().stream_seed = 4;
  auto engine = start_engine(config_of("glm_share_bf16", world));
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::string cold = fingerprint(generate_all(**engine, {request}).front());
  const std::string warm = fingerprint(generate_all(**engine, {request}).front());
  EXPECT_EQ(warm, cold);
  EXPECT_EQ((*engine)->state().cached_prompt_tokens, 128);
  GenerateRequest bypass = request;
  bypass.bypass_prefix_cache = true;
  auto sink = std::make_shared<CollectingSink>();
  const RequestId id = *(*engine)->submit(bypass, sink);
  sink->wait_for_tokens(2);
  (*engine)->set_paused(id, true);
  generate_all(**engine, {requests(256).back()});
  (*engine)->set_paused(id, false);
  EXPECT_EQ(sink->wait().usage.times_parked, 1);
  EXPECT_EQ(fingerprint(sink->tokens()), cold);
  expect_all_memory_free(**engine);
}

}  // namespace
}  // namespace dhs
