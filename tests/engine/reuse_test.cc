// What was computed once is not computed again: prefix hits, and requests that leave the device and
// come back, end with the bits of an undisturbed run.
#include <gtest/gtest.h>

#include <thread>

#include "engine_client.h"

namespace dhs {
namespace {

struct World {
  const char* name;
  ResidencyMode mode = ResidencyMode::kAdaptive;
  int64_t memory_kib = 24 << 10;
  int max_running = 8;
};

EngineConfig config_of(const World& world) {
  EngineConfig config = demo_config();
  config.residency.mode = world.mode;
  config.residency.fixed_rows_per_request = 384;
  config.device.memory_bytes = world.memory_kib << 10;
  config.scheduler.max_running = world.max_running;
  config.scheduler.max_batched_tokens = 128;
  return config;
}

// Where the longest request here still fits alone, with and without a choice of what to keep.
const std::vector<World> kWorlds = {{.name = "roomy"},
                                    {.name = "tight", .memory_kib = 1600},
                                    {.name = "resident", .mode = ResidencyMode::kResident}};

GenerateRequest request_of(std::vector<TokenId> prompt, int32_t max_tokens = 12) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = true;
  request.sampling.temperature = 0.9f;
  request.sampling.seed = 42;
  return request;
}

struct Answer {
  std::string print;  // tokens and logprob bits
  std::vector<TokenId> tokens;
  Usage usage;
};

Answer ask(Engine& engine, const GenerateRequest& request) {
  auto sink = std::make_shared<CollectingSink>();
  const auto id = engine.submit(request, sink);
  EXPECT_TRUE(id.ok()) << id.status();
  Answer answer{.usage = sink->wait().usage};
  const auto outputs = sink->tokens();
  answer.print = fingerprint(outputs);
  for (const TokenOutput& output : outputs) answer.tokens.push_back(output.token);
  return answer;
}

std::unique_ptr<Engine> start(const World& world) {
  auto engine = start_engine(config_of(world));
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

TEST(PrefixReuse, warm_runs_give_the_bits_of_cold_ones) {
  const GenerateRequest request = request_of(some_prompt(1, 900));
  for (const World& world : kWorlds) {
    auto engine = start(world);
    const Answer cold = ask(*engine, request);
    EXPECT_EQ(cold.usage.cached_prompt_tokens, 0) << world.name;
    const Answer warm = ask(*engine, request);
    EXPECT_EQ(warm.usage.cached_prompt_tokens, 896) << world.name;
    EXPECT_EQ(warm.print, cold.print) << world.name;
    // Long enough after others that nothing of it is left on the device.
    for (uint32_t seed = 2; seed < 5; ++seed) ask(*engine, request_of(some_prompt(seed, 800)));
    const Answer later = ask(*engine, request);
    EXPECT_EQ(later.usage.cached_prompt_tokens, 896) << world.name;
    EXPECT_EQ(later.print, cold.print) << world.name;
    GenerateRequest bypass = request;
    bypass.bypass_prefix_cache = true;
    const Answer again = ask(*engine, bypass);
    EXPECT_EQ(again.usage.cached_prompt_tokens, 0) << world.name;
    EXPECT_EQ(again.print, cold.print) << world.name;
    EXPECT_EQ(engine->state().cached_prompt_tokens, 2 * 896) << world.name;
    expect_all_memory_free(*engine);
    EXPECT_GT(engine->state().host_cached_bytes, 0) << world.name;
  }
}

TEST(PrefixReuse, a_conversation_goes_on_from_what_was_generated) {
  const World world{.name = "roomy"};
  auto engine = start(world);
  std::vector<TokenId> text = some_prompt(7, 200);
  const Answer first = ask(*engine, request_of(text, 100));
  text.insert(text.end(), first.tokens.begin(), first.tokens.end());
  const std::vector<TokenId> question = some_prompt(8, 50);
  text.insert(text.end(), question.begin(), question.end());
  const Answer second = ask(*engine, request_of(text));
  EXPECT_EQ(second.usage.cached_prompt_tokens, 256) << "four blocks, the last of them generated";
  auto cold_engine = start(world);
  EXPECT_EQ(ask(*cold_engine, request_of(text)).print, second.print);
}

TEST(PrefixReuse, salts_keep_tenants_apart) {
  auto engine = start({.name = "roomy"});
  GenerateRequest one = request_of(some_prompt(9, 300));
  one.cache_salt = "one";
  GenerateRequest other = one;
  other.cache_salt = "other";
  const Answer first = ask(*engine, one);
  const Answer second = ask(*engine, other);
  EXPECT_EQ(second.usage.cached_prompt_tokens, 0);
  EXPECT_EQ(second.print, first.print);
  EXPECT_EQ(ask(*engine, one).usage.cached_prompt_tokens, 256);
}

TEST(PrefixReuse, can_be_switched_off) {
  EngineConfig config = config_of({.name = "roomy"});
  config.kv.prefix_cache = false;
  auto engine = *start_engine(config);
  const GenerateRequest request = request_of(some_prompt(9, 300));
  ask(*engine, request);
  EXPECT_EQ(ask(*engine, request).usage.cached_prompt_tokens, 0);
  EXPECT_EQ(engine->state().host_cached_bytes, 0);
}

// Requests that begin alike and run at once, while the one that came first computes.
TEST(PrefixReuse, requests_that_share_a_running_beginning_keep_their_bits) {
  std::vector<GenerateRequest> all;
  for (uint32_t i = 0; i < 6; ++i) {
    std::vector<TokenId> prompt = some_prompt(11, 400);
    const std::vector<TokenId> own = some_prompt(100 + i, 30 + 40 * i);
    prompt.insert(prompt.end(), own.begin(), own.end());
    all.push_back(request_of(prompt));
  }
  std::vector<std::string> expected;
  for (const GenerateRequest& request : all) {
    auto alone = start({.name = "roomy"});
    expected.push_back(ask(*alone, request).print);
  }
  for (const World& world : kWorlds) {
    World few = world;
    few.max_running = 2;  // so that later ones find what the first ones left
    for (const World& one : {world, few}) {
      auto engine = start(one);
      const auto outputs = generate_all(*engine, all);
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(fingerprint(outputs[i]), expected[i]) << one.name << ", request " << i;
      }
      EXPECT_GE(engine->state().cached_prompt_tokens, one.max_running == 2 ? 384 : 0) << one.name;
    }
  }
}

// ---- Parking ------------------------------------------------------------------------------------

TEST(Parking, a_paused_request_goes_on_with_the_bits_of_an_undisturbed_one) {
  const GenerateRequest request = request_of(some_prompt(21, 700), 60);
  for (const World& world : kWorlds) {
    auto undisturbed = start(world);
    const std::string expected = ask(*undisturbed, request).print;
    auto engine = start(world);
    auto sink = std::make_shared<CollectingSink>();
    const RequestId id = *engine->submit(request, sink);
    for (size_t num_tokens : {1, 20, 40}) {
      sink->wait_for_tokens(num_tokens);
      engine->set_paused(id, true);
      // Others take the device meanwhile, and leave nothing of it there.
      for (uint32_t seed = 30; seed < 32; ++seed) ask(*engine, request_of(some_prompt(seed, 900)));
      EXPECT_EQ(engine->state().parked_requests, 1) << world.name;
      engine->set_paused(id, false);
    }
    const Finished finished = sink->wait();
    EXPECT_EQ(finished.usage.times_parked, 3) << world.name;
    EXPECT_EQ(finished.usage.completion_tokens, 60) << world.name;
    EXPECT_EQ(fingerprint(sink->tokens()), expected) << world.name;
    expect_all_memory_free(*engine);
  }
}

TEST(Parking, one_paused_in_the_middle_of_its_prompt_computes_no_token_twice) {
  const World world{.name = "roomy"};
  const GenerateRequest request = request_of(some_prompt(22, 1500), 5);
  auto undisturbed = start(world);
  const std::string expected = ask(*undisturbed, request).print;
  const int64_t prompt_tokens = undisturbed->state().prompt_tokens;
  auto engine = start(world);
  auto sink = std::make_shared<CollectingSink>();
  const RequestId id = *engine->submit(request, sink);
  while (engine->state().steps < 3) std::this_thread::yield();
  engine->set_paused(id, true);
  while (engine->state().parked_requests == 0 && sink->num_finished() == 0) {
    std::this_thread::yield();
  }
  engine->set_paused(id, false);
  EXPECT_EQ(sink->wait().usage.times_parked, 1);
  EXPECT_EQ(fingerprint(sink->tokens()), expected);
  EXPECT_EQ(engine->state().prompt_tokens, prompt_tokens);
}

TEST(Parking, preempted_requests_lose_and_repeat_nothing) {
  std::vector<GenerateRequest> all;
  for (uint32_t i = 0; i < 6; ++i) {
    all.push_back(request_of(some_prompt(40 + i, 300 + 100 * i), 40));
    all.back().priority = static_cast<int32_t>(i % 3);
  }
  std::vector<std::string> expected;
  {
    auto engine = start({.name = "roomy"});
    for (const GenerateRequest& request : all) expected.push_back(ask(*engine, request).print);
  }
  for (const World& world :
       {World{.name = "two places", .max_running = 2}, World{.name = "tight", .memory_kib = 2400},
        World{.name = "resident, tight", .mode = ResidencyMode::kResident, .memory_kib = 4800}}) {
    auto engine = start(world);
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    // One after the other, so that later ones of higher priority find others running.
    for (const GenerateRequest& request : all) {
      sinks.push_back(std::make_shared<CollectingSink>());
      ASSERT_TRUE(engine->submit(request, sinks.back()).ok());
      sinks.front()->wait_for_tokens(3);
    }
    int64_t times_parked = 0;
    for (size_t i = 0; i < sinks.size(); ++i) {
      times_parked += sinks[i]->wait().usage.times_parked;
      EXPECT_EQ(fingerprint(sinks[i]->tokens()), expected[i]) << world.name << ", request " << i;
    }
    EXPECT_GT(times_parked, 0) << world.name;
    EXPECT_EQ(engine->state().preemptions, times_parked) << world.name;
    expect_all_memory_free(*engine);
  }
}

// They fit when they start, not when they have grown.
TEST(Parking, requests_that_outgrow_the_device_take_turns) {
  std::vector<GenerateRequest> all;
  for (uint32_t i = 0; i < 3; ++i) all.push_back(request_of(some_prompt(60 + i, 60), 500));
  std::vector<std::string> expected;
  {
    auto engine = start({.name = "roomy"});
    for (const auto& output : generate_all(*engine, all)) expected.push_back(fingerprint(output));
    EXPECT_EQ(engine->state().preemptions, 0);
  }
  for (const World& world :
       {World{.name = "adaptive", .memory_kib = 1600},
        World{.name = "resident", .mode = ResidencyMode::kResident, .memory_kib = 2400}}) {
    auto engine = start(world);
    const auto outputs = generate_all(*engine, all);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(fingerprint(outputs[i]), expected[i]) << world.name << ", request " << i;
    }
    EXPECT_GT(engine->state().preemptions, 0) << world.name;
  }
}

TEST(Parking, a_paused_request_can_be_cancelled) {
  auto engine = start({.name = "roomy"});
  auto sink = std::make_shared<CollectingSink>();
  const RequestId id = *engine->submit(request_of(some_prompt(70, 100), 1000), sink);
  sink->wait_for_tokens(2);
  engine->set_paused(id, true);
  engine->cancel(id);
  EXPECT_EQ(sink->wait().reason, FinishReason::kCancelled);
  expect_all_memory_free(*engine);
}

}  // namespace
}  // namespace dhs
