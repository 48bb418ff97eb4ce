// Penalties and biases in the engine: its tokens are those that the formula gives from the model's
// own logits, and drafts change none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine_client.h"
#include "kernels/sampling/sampling.h"

namespace dhs {
namespace {

constexpr int64_t kVocab = 4096;

// Reports the log-probabilities of the whole vocabulary, when asked.
EngineConfig config_of(DraftKind kind = DraftKind::kNone, int max_drafts = 0) {
  EngineConfig config = demo_config();
  config.limits.max_logprobs = kVocab;
  config.scheduler.max_running = 4;
  config.draft.kind = kind;
  if (kind == DraftKind::kDflash2) config.draft.path = config.model.path + "/dflash2";
  config.draft.max_tokens = max_drafts;
  return config;
}

std::unique_ptr<Engine> start(const EngineConfig& config) {
  auto engine = start_engine(config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Its end repeats, so that the model goes on repeating and prompt lookup finds drafts.
std::vector<TokenId> looping_prompt(uint32_t seed) {
  const std::vector<TokenId> period = some_prompt(seed, 3 + seed % 4);
  std::vector<TokenId> prompt = some_prompt(seed + 1000, 5);
  for (int i = 0; i < 6; ++i) prompt.insert(prompt.end(), period.begin(), period.end());
  return prompt;
}

GenerateRequest request_of(std::vector<TokenId> prompt, int32_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.seed = 77;
  request.sampling.logprobs = true;
  return request;
}

std::vector<TokenId> tokens_of(const std::vector<TokenOutput>& output) {
  std::vector<TokenId> tokens;
  for (const TokenOutput& one : output) tokens.push_back(one.token);
  return tokens;
}

std::vector<TokenId> generate(Engine& engine, const GenerateRequest& request) {
  return tokens_of(generate_all(engine, {request}).at(0));
}

// ---- A reference of its own ---------------------------------------------------------------------

// Log softmax of what follows `context`, by token, with the changes that `sampling` makes.
std::vector<float> logprobs_after(Engine& engine, std::vector<TokenId> context,
                                  SamplingParams sampling) {
  GenerateRequest request = request_of(std::move(context), 1);
  sampling.temperature = 0;
  sampling.max_tokens = 1;
  sampling.ignore_eos = true;
  sampling.num_top_logprobs = kVocab;
  request.sampling = std::move(sampling);
  const auto output = generate_all(engine, {request}).at(0);
  std::vector<float> logprobs(kVocab, NAN);
  for (const TokenLogprob& one : output.at(0).top) logprobs[one.token] = one.logprob;
  return logprobs;
}

// Presence, frequency and biases: they take no notice of what log softmax subtracted.
void adjust(const SamplingParams& sampling, const std::vector<TokenId>& output,
            std::vector<float>& logits) {
  for (const LogitBias& bias : sampling.logit_bias) logits[bias.token] += bias.bias;
  std::map<TokenId, int> counts;
  for (const TokenId token : output) ++counts[token];
  for (const auto& [token, n] : counts) {
    logits[token] -= sampling.presence_penalty + static_cast<float>(n) * sampling.frequency_penalty;
  }
}

TokenId draw(const SamplingParams& sampling, int64_t position, const std::vector<float>& logits) {
  const RowSampling row{.temperature = sampling.temperature,
                        .top_p = sampling.top_p,
                        .top_k = sampling.top_k,
                        .seed = *sampling.seed,
                        .position = static_cast<uint32_t>(position)};
  TokenId token = -1;
  float logprob = 0;
  sampling_ref({.logits = view(logits.data(), 1, kVocab),
                .rows = view(&row, 1),
                .tokens = view(&token, 1),
                .logprobs = view(&logprob, 1)});
  return token;
}

std::vector<TokenId> reference(Engine& engine, const GenerateRequest& request) {
  std::vector<TokenId> context = request.prompt;
  std::vector<TokenId> output;
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    std::vector<float> logits = logprobs_after(engine, context, {});
    adjust(request.sampling, output, logits);
    output.push_back(draw(request.sampling, std::ssize(context), logits));
    context.push_back(output.back());
  }
  return output;
}

TEST(Penalties, give_the_tokens_of_the_formula_over_the_models_logits) {
  const auto engine = start(config_of());
  ASSERT_NE(engine, nullptr);
  const std::vector<TokenId> prompt = looping_prompt(1);
  const TokenId usual = generate(*engine, request_of(prompt, 1)).at(0);
  const std::vector<SamplingParams> cases = {
      {.presence_penalty = 1.5f},
      {.frequency_penalty = 0.75f},
      {.presence_penalty = -0.5f, .frequency_penalty = 2.0f},
      {.frequency_penalty = 0.5f, .logit_bias = {{900, 3.5f}, {usual, -2.5f}, {4, 6.0f}}},
  };
  for (const float temperature : {0.0f, 0.9f}) {
    std::set<std::vector<TokenId>> outputs;
    for (const SamplingParams& sampling : cases) {
      GenerateRequest request = request_of(prompt, 16);
      request.sampling.temperature = temperature;
      request.sampling.presence_penalty = sampling.presence_penalty;
      request.sampling.frequency_penalty = sampling.frequency_penalty;
      request.sampling.logit_bias = sampling.logit_bias;
      const std::vector<TokenId> got = generate(*engine, request);
      EXPECT_EQ(got, reference(*engine, request)) << outputs.size() << " at " << temperature;
      outputs.insert(got);
    }
    EXPECT_GT(outputs.size(), 1u);
  }
}

// With a repetition penalty of 2 a logit l of a seen token becomes l / 2 or 2 l, and any other
// stays. Log softmax takes one number off all logits before and another one after; both follow
// from one unseen and one seen token, and then every other token has to fit.
TEST(Penalties, of_repetition_scale_the_logits_of_prompt_and_output_by_their_sign) {
  const auto engine = start(config_of());
  ASSERT_NE(engine, nullptr);
  const std::vector<TokenId> prompt = looping_prompt(2);
  const auto before = logprobs_after(*engine, prompt, {});
  const auto after = logprobs_after(*engine, prompt, {.repetition_penalty = 2});
  const std::set<TokenId> seen(prompt.begin(), prompt.end());
  TokenId unseen = 0;
  while (seen.contains(unseen)) ++unseen;
  const double shift = double{after[unseen]} - before[unseen];
  // before = l - z, after = l' - z + shift. The likeliest of the seen has l > 0: l' = l / 2.
  const TokenId likeliest = *std::max_element(
      seen.begin(), seen.end(), [&](TokenId a, TokenId b) { return before[a] < before[b]; });
  const double z = -before[likeliest] - 2 * (double{after[likeliest]} - shift - before[likeliest]);
  int num_above = 0, num_below = 0;
  for (TokenId token = 0; token < kVocab; ++token) {
    const double logit = before[token] + z;
    const double scaled = logit > 0 ? logit / 2 : logit * 2;
    const double expected = (seen.contains(token) ? scaled : logit) - z + shift;
    ASSERT_NEAR(after[token], expected, 1e-3) << token;
    if (seen.contains(token)) ++(logit > 0 ? num_above : num_below);
  }
  EXPECT_GT(num_above, 0);
  EXPECT_GT(num_below, 0);
}

TEST(Penalties, of_frequency_end_a_loop) {
  const auto engine = start(config_of());
  ASSERT_NE(engine, nullptr);
  GenerateRequest request = request_of(looping_prompt(3), 40);
  const std::vector<TokenId> plain = generate(*engine, request);
  request.sampling.frequency_penalty = 2;
  const std::vector<TokenId> penalised = generate(*engine, request);
  const auto num_distinct = [](const std::vector<TokenId>& tokens) {
    return std::set<TokenId>(tokens.begin(), tokens.end()).size();
  };
  EXPECT_GT(num_distinct(penalised), num_distinct(plain));
}

TEST(LogitBias, forces_a_token_and_bans_one) {
  const auto engine = start(config_of());
  ASSERT_NE(engine, nullptr);
  for (const float temperature : {0.0f, 1.0f}) {
    GenerateRequest request = request_of(looping_prompt(4), 12);
    request.sampling.temperature = temperature;
    const std::vector<TokenId> plain = generate(*engine, request);
    GenerateRequest forced = request;
    forced.sampling.logit_bias = {{1234, 100}};
    EXPECT_EQ(generate(*engine, forced), std::vector<TokenId>(12, 1234));
    GenerateRequest banned = request;
    banned.sampling.logit_bias = {{plain[0], -100}};
    for (const TokenId token : generate(*engine, banned)) EXPECT_NE(token, plain[0]);
  }
}

TEST(Penalties, that_could_change_too_many_logits_are_refused) {
  EngineConfig config = config_of();
  config.limits.max_adjusted_tokens = 20;
  const auto engine = start(config);
  ASSERT_NE(engine, nullptr);
  GenerateRequest request = request_of(some_prompt(1, 3), 21);
  EXPECT_EQ(generate_all(*engine, {request}).at(0).size(), 21u);
  request.sampling.presence_penalty = 1;
  const auto refused = engine->submit(request, std::make_shared<CollectingSink>());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("the limit is 20 (limits.max_adjusted_tokens); lower max_tokens"));
  request.sampling.max_tokens = 20;
  EXPECT_EQ(generate_all(*engine, {request}).at(0).size(), 20u);
}

// ---- Drafts -------------------------------------------------------------------------------------

std::vector<GenerateRequest> penalised_requests(float temperature) {
  std::vector<GenerateRequest> all;
  for (uint32_t i = 0; i < 24; ++i) {
    GenerateRequest request = request_of(looping_prompt(100 + i), 24 + static_cast<int32_t>(i));
    SamplingParams& sampling = request.sampling;
    sampling.temperature = temperature;
    sampling.top_p = 0.9f;
    sampling.seed = 500 + i;
    // Some make loops likelier, so that drafts are accepted; others break them.
    if (i % 3 == 0) sampling.repetition_penalty = i % 2 == 0 ? 0.7f : 1.2f;
    if (i % 4 != 1) sampling.frequency_penalty = i % 2 == 0 ? -0.75f : 0.3f;
    if (i % 5 == 2) sampling.presence_penalty = -1;
    if (i % 4 == 1) sampling.logit_bias = {{request.prompt.back(), 8}, {17, -3}};
    all.push_back(std::move(request));
  }
  return all;
}

// Half of them end where they drew a token of their own, or, if it came early, later.
void add_stop_tokens(std::vector<GenerateRequest>& requests) {
  const auto engine = start(config_of());
  ASSERT_NE(engine, nullptr);
  const auto outputs = generate_all(*engine, requests);
  for (size_t i = 0; i < requests.size(); i += 2) {
    requests[i].sampling.stop_token_ids = {outputs[i][outputs[i].size() * 2 / 3].token};
    requests[i].sampling.min_tokens = i % 4 == 0 ? 5 : 0;
  }
}

struct Ended {
  std::vector<std::string> outputs;  // tokens, their logprobs, and how they ended
  EngineState state;
};

Ended run(const EngineConfig& config, const std::vector<GenerateRequest>& requests) {
  const auto engine = start(config);
  if (engine == nullptr) return {};
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const GenerateRequest& request : requests) {
    sinks.push_back(std::make_shared<CollectingSink>());
    EXPECT_TRUE(engine->submit(request, sinks.back()).ok());
  }
  Ended ended;
  for (const auto& sink : sinks) {
    const Finished finished = sink->wait();
    const std::vector<TokenOutput> tokens = sink->tokens();
    EXPECT_EQ(finished.usage.completion_tokens, std::ssize(tokens));
    ended.outputs.push_back(absl::StrCat(fingerprint(tokens), static_cast<int>(finished.reason),
                                         " ", finished.stop_token.value_or(-1)));
  }
  ended.state = engine->state();
  return ended;
}

TEST(Penalties, with_drafts_give_the_bits_of_plain_decoding) {
  for (const float temperature : {0.0f, 0.8f}) {
    std::vector<GenerateRequest> requests = penalised_requests(temperature);
    add_stop_tokens(requests);
    const Ended plain = run(config_of(), requests);
    ASSERT_EQ(plain.outputs.size(), requests.size());
    EXPECT_GT(std::count_if(plain.outputs.begin(), plain.outputs.end(),
                            [](const std::string& output) { return !output.ends_with(" -1"); }),
              3);
    for (const int max_drafts : {1, 5, 0}) {
      const Ended drafted = run(config_of(DraftKind::kNgram, max_drafts), requests);
      EXPECT_EQ(drafted.outputs, plain.outputs) << max_drafts << " drafts at " << temperature;
      EXPECT_GT(drafted.state.drafts.accepted, 20) << max_drafts;
      EXPECT_LT(drafted.state.drafts.accepted, drafted.state.drafts.verified) << max_drafts;
    }
  }
}

TEST(Penalties, with_drafts_of_a_model_give_the_bits_of_plain_decoding_when_greedy) {
  std::vector<GenerateRequest> requests = penalised_requests(0);
  add_stop_tokens(requests);
  const Ended plain = run(config_of(), requests);
  ASSERT_EQ(plain.outputs.size(), requests.size());
  const Ended drafted = run(config_of(DraftKind::kDflash2, 5), requests);
  EXPECT_EQ(drafted.outputs, plain.outputs);
  EXPECT_GT(drafted.state.drafts.accepted, 5);
  EXPECT_LT(drafted.state.drafts.accepted, drafted.state.drafts.verified);
}

}  // namespace
}  // namespace dhs
