// Drafts change how fast tokens come, never their distribution: what a request's first tokens are,
// over many seeds, against the exact distribution of a target small enough to enumerate.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <numeric>
#include <set>

#include "engine_client.h"
#include "kernels/statistics.h"

namespace dhs {
namespace {

constexpr int kVocab = 8;
constexpr int kDepth = 4;           // tokens whose joint distribution is known
constexpr int kNumCells = 1 << 12;  // kVocab ^ kDepth; the first token has the highest digit
constexpr int kMostOpen = 256;      // requests at once
constexpr int kNumRequests = 40000;
constexpr int kNumChosen = 20000;  // where the samples themselves are compared
constexpr double kSmallestPValue = 1e-4;

const std::vector<TokenId> kPrompt = {3, 1, 4, 1, 5, 2};

// ---- The engine ---------------------------------------------------------------------------------

struct Family {
  const char* name;
  DraftKind kind;
};
constexpr Family kPlain = {"plain", DraftKind::kNone};

// max_tokens: verified in a step; 0: adaptive.
EngineConfig toy_config(DraftKind kind, int max_tokens) {
  const std::string toy = DHS_SOURCE_DIR "/tests/golden/toy/";
  EngineConfig config = demo_config();
  config.model.path = toy + "target";
  config.model.name = "toy";
  config.model.max_context = 128;
  config.device.num_threads = 1;
  config.scheduler.max_running = 64;
  config.scheduler.max_batched_tokens = 512;
  config.draft.kind = kind;
  config.draft.max_tokens = max_tokens;
  config.draft.ngram_min = 1;
  config.draft.ngram_max = 2;
  if (kind == DraftKind::kDflash) config.draft.path = toy + "dflash";
  if (kind == DraftKind::kDflash2) config.draft.path = toy + "dflash2";
  if (kind == DraftKind::kDspark) config.draft.path = toy + "dspark";
  return config;
}

std::unique_ptr<Engine> start(const EngineConfig& config) {
  auto engine = start_engine(config);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

struct Filters {
  float temperature = 1;
  float top_p = 1;
  int32_t top_k = 0;
  float frequency_penalty = 0;
  float bias = 0;  // of kBiased
};
constexpr TokenId kBiased = 5;
constexpr Filters kNoFilters;
constexpr Filters kFilters = {.temperature = 0.8f, .top_p = 0.9f, .top_k = 5};
constexpr Filters kPenalties = {.frequency_penalty = 0.9f, .bias = -0.7f};

// ---- The exact distribution ---------------------------------------------------------------------

using Row = std::array<double, kVocab>;

// Of the next token; logprobs are those of the raw logits.
Row filtered(const Row& logprobs, const Filters& filters) {
  std::array<int, kVocab> order;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return logprobs[a] > logprobs[b]; });
  const int num_kept = filters.top_k > 0 ? std::min(filters.top_k, kVocab) : kVocab;
  const auto weight = [&](int i) { return std::exp(logprobs[order[i]] / filters.temperature); };
  double total = 0;
  for (int i = 0; i < num_kept; ++i) total += weight(i);
  Row row = {};
  double sum = 0;
  for (int i = 0; i < num_kept && (i == 0 || sum < filters.top_p); ++i) {
    row[order[i]] = weight(i) / total;
    sum += row[order[i]];
  }
  for (double& p : row) p /= sum;
  return row;
}

// Of the token behind a prefix of so many tokens, which reads as that number.
Row penalised(Row logprobs, const Filters& filters, int length, size_t prefix) {
  for (int i = 0; i < length; ++i) {
    logprobs[(prefix >> (3 * i)) % kVocab] -= filters.frequency_penalty;
  }
  logprobs[kBiased] += filters.bias;
  return logprobs;
}

// Log probabilities of the token behind every prefix of up to kDepth - 1 tokens, as plain decoding
// of prompt and prefix reports them. By length, then by the number that the prefix reads as.
using Logprobs = std::array<std::vector<Row>, kDepth>;

std::vector<GenerateRequest> prefix_requests(int length) {
  std::vector<GenerateRequest> requests;
  for (int number = 0; number < 1 << (3 * length); ++number) {
    GenerateRequest& request = requests.emplace_back();
    request.prompt = kPrompt;
    for (int i = length - 1; i >= 0; --i) request.prompt.push_back((number >> (3 * i)) % kVocab);
    request.sampling.max_tokens = 1;
    request.sampling.ignore_eos = true;
    request.sampling.seed = 1;
    request.sampling.logprobs = true;
    request.sampling.num_top_logprobs = kVocab;
  }
  return requests;
}

Row row_of(const TokenOutput& output) {
  Row row;
  row.fill(-INFINITY);
  double total = 0;
  for (const TokenLogprob& each : output.top) {
    row[each.token] = each.logprob;
    total += std::exp(each.logprob);
  }
  EXPECT_NEAR(total, 1, 1e-5);
  return row;
}

Logprobs enumerate_logprobs() {
  Logprobs all;
  const auto engine = start(toy_config(DraftKind::kNone, 0));
  if (engine == nullptr) return all;
  for (int length = 0; length < kDepth; ++length) {
    for (const auto& output : generate_all(*engine, prefix_requests(length))) {
      all[length].push_back(row_of(output.at(0)));
    }
  }
  return all;
}

// Of the first kDepth tokens: the probability of every cell.
std::vector<double> exact_joint(const Filters& filters) {
  static const Logprobs logprobs = enumerate_logprobs();
  std::vector<double> joint = {1};
  for (int length = 0; length < kDepth; ++length) {
    std::vector<double> longer;
    for (size_t prefix = 0; prefix < logprobs[length].size(); ++prefix) {
      const Row row = penalised(logprobs[length][prefix], filters, length, prefix);
      for (double p : filtered(row, filters)) longer.push_back(joint[prefix] * p);
    }
    joint = std::move(longer);
  }
  return joint;
}

// Of the tokens before the last one.
std::vector<double> without_last(const std::vector<double>& joint) {
  std::vector<double> shorter(joint.size() / kVocab);
  for (size_t cell = 0; cell < joint.size(); ++cell) shorter[cell / kVocab] += joint[cell];
  return shorter;
}

// ---- Samples ------------------------------------------------------------------------------------

struct Seeds {
  uint64_t first = 1;
  uint64_t end = 1 + kNumRequests;
};

// Counts the cells of requests that have ended.
class Tally {
 public:
  void begin() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_open_ < kMostOpen; });
    ++num_open_;
  }
  void end(const std::vector<TokenId>& tokens) {
    std::lock_guard lock(mutex_);
    int cell = 0;
    for (int i = 0; i < kDepth; ++i) cell = cell * kVocab + tokens.at(i);
    ++counts_[cell];
    --num_open_;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_open_ == 0; });
  }
  std::map<int32_t, int> counts() const { return counts_; }  // while none is open

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_open_ = 0;
  std::map<int32_t, int> counts_;
};

class CellSink final : public TokenSink {
 public:
  explicit CellSink(Tally& tally) : tally_(tally) {}
  void on_tokens(const std::vector<TokenOutput>& tokens) override {
    for (const TokenOutput& each : tokens) tokens_.push_back(each.token);
  }
  void on_finished(const Finished& finished) override {
    EXPECT_EQ(finished.reason, FinishReason::kLength);
    EXPECT_EQ(tokens_.size(), kDepth + 1u);
    tokens_.resize(kDepth + 1);
    tally_.end(tokens_);
  }

 private:
  Tally& tally_;
  std::vector<TokenId> tokens_;
};

// One token more than is looked at: so that the last of them is verified as a draft, too.
GenerateRequest sampled_request(const Filters& filters, uint64_t seed) {
  GenerateRequest request;
  request.prompt = kPrompt;
  request.sampling.temperature = filters.temperature;
  request.sampling.top_p = filters.top_p;
  request.sampling.top_k = filters.top_k;
  request.sampling.frequency_penalty = filters.frequency_penalty;
  if (filters.bias != 0) request.sampling.logit_bias = {{kBiased, filters.bias}};
  request.sampling.max_tokens = kDepth + 1;
  request.sampling.ignore_eos = true;
  request.sampling.seed = seed;
  return request;
}

void sample_into(Tally& tally, Engine& engine, const Filters& filters, Seeds seeds) {
  for (uint64_t seed = seeds.first; seed < seeds.end; ++seed) {
    tally.begin();
    const auto id =
        engine.submit(sampled_request(filters, seed), std::make_shared<CellSink>(tally));
    ASSERT_TRUE(id.ok()) << id.status();
  }
  tally.wait();
}

// The smaller p-value of those of all kDepth tokens and of all but the last.
double p_value(const std::map<int32_t, int>& counts, const std::vector<double>& joint) {
  std::map<int32_t, int> shorter;
  int num_requests = 0;
  for (const auto& [cell, count] : counts) {
    shorter[cell / kVocab] += count;
    num_requests += count;
  }
  const double of_all = p_value_of(counts, joint, num_requests);
  const double of_first = p_value_of(shorter, without_last(joint), num_requests);
  std::cout << "p-values of " << num_requests << " requests: " << of_first << " of " << kDepth - 1
            << " tokens, " << of_all << " of " << kDepth << "\n";
  testing::Test::RecordProperty("p_value_3", std::to_string(of_first));
  testing::Test::RecordProperty("p_value_4", std::to_string(of_all));
  return std::min(of_all, of_first);
}

std::string at_text(const std::vector<int64_t>& at) {
  std::string text;
  for (int64_t count : at) absl::StrAppend(&text, " ", count);
  return text;
}

struct Outcome {
  std::map<int32_t, int> counts;
  DraftCounts drafts;

  void report() const {
    std::cout << "draws with drafts " << drafts.draws << "; verified" << at_text(drafts.verified_at)
              << "; accepted" << at_text(drafts.accepted_at) << "\n";
  }
};

void add(const DraftCounts& more, DraftCounts& sum) {
  sum.draws += more.draws;
  sum.verified += more.verified;
  sum.accepted += more.accepted;
  sum.verified_at.resize(std::max(sum.verified_at.size(), more.verified_at.size()));
  sum.accepted_at.resize(sum.verified_at.size());
  for (size_t i = 0; i < more.verified_at.size(); ++i) {
    sum.verified_at[i] += more.verified_at[i];
    sum.accepted_at[i] += more.accepted_at[i];
  }
}

// With a new engine for every `per_engine` requests.
Outcome sample(const EngineConfig& config, const Filters& filters, Seeds seeds,
               uint64_t per_engine = UINT32_MAX) {
  Outcome outcome;
  Tally tally;
  for (uint64_t first = seeds.first; first < seeds.end; first += per_engine) {
    const auto engine = start(config);
    if (engine == nullptr) return outcome;
    sample_into(tally, *engine, filters, {first, std::min(first + per_engine, seeds.end)});
    add(engine->state().drafts, outcome.drafts);
  }
  outcome.counts = tally.counts();
  outcome.report();
  return outcome;
}

// Nothing is proven unless drafts of every place were accepted, and others were not.
void expect_all_ends(const DraftCounts& drafts, int num_requests) {
  ASSERT_EQ(drafts.verified_at.size(), 3u);
  for (int64_t accepted : drafts.accepted_at) EXPECT_GT(accepted, num_requests / 20);
  EXPECT_LT(drafts.accepted, drafts.verified * 4 / 5);
}

// Lengths vary from step to step: what a row costs is close to what a draft is worth where few
// requests run, and an engine begins with the highest cap.
Outcome sample_adaptively(DraftKind kind, Seeds seeds) {
  EngineConfig config = toy_config(kind, 0);
  config.scheduler.max_running = 8;
  const Outcome outcome = sample(config, kNoFilters, seeds, 4000);
  const std::vector<int64_t>& at = outcome.drafts.verified_at;
  EXPECT_GE(at.size(), 3u);
  if (at.size() < 3) return outcome;
  EXPECT_GT(at[0], at[1]);
  EXPECT_GT(at[1], at[2]);
  EXPECT_GT(at[2], 0);
  // At a fixed length each request verifies three of its drafts at once, one time.
  EXPECT_LT(at[2], static_cast<int64_t>(seeds.end - seeds.first));
  return outcome;
}

// ---- Drafts that are drawn from a distribution --------------------------------------------------

constexpr Seeds kPenaltySeeds = {.first = 1, .end = 1 + kNumChosen};

class Drawn : public testing::TestWithParam<Family> {};

TEST_P(Drawn, at_a_fixed_length) {
  const Outcome outcome = sample(toy_config(GetParam().kind, 3), kNoFilters, {});
  EXPECT_GT(p_value(outcome.counts, exact_joint(kNoFilters)), kSmallestPValue);
  expect_all_ends(outcome.drafts, kNumRequests);
}

TEST_P(Drawn, at_adaptive_lengths) {
  const Outcome outcome = sample_adaptively(GetParam().kind, {});
  double p = p_value(outcome.counts, exact_joint(kNoFilters));
  if (p <= kSmallestPValue) {  // Lengths follow the clock, so that chance has more than one try.
    const Seeds others = {.first = 1 << 20, .end = (1 << 20) + kNumRequests};
    p = p_value(sample_adaptively(GetParam().kind, others).counts, exact_joint(kNoFilters));
  }
  EXPECT_GT(p, kSmallestPValue);
}

TEST_P(Drawn, under_the_filters_of_requests) {
  const Outcome outcome = sample(toy_config(GetParam().kind, 3), kFilters, {});
  EXPECT_GT(p_value(outcome.counts, exact_joint(kFilters)), kSmallestPValue);
  expect_all_ends(outcome.drafts, kNumRequests);
}

// Those of a draft's place depend on the drafts before it.
TEST_P(Drawn, under_the_penalties_of_requests) {
  const Outcome outcome = sample(toy_config(GetParam().kind, 3), kPenalties, kPenaltySeeds);
  EXPECT_GT(p_value(outcome.counts, exact_joint(kPenalties)), kSmallestPValue);
  EXPECT_LT(p_value(outcome.counts, exact_joint(kNoFilters)), kSmallestPValue);
  EXPECT_GT(outcome.drafts.accepted, kNumChosen / 4);
}

std::vector<GenerateRequest> mixed_requests() {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 16; ++i) {
    GenerateRequest request = sampled_request(kNoFilters, 500 + i);
    for (int j = 0; j < i % 5; ++j) request.prompt.push_back((i + 3 * j) % kVocab);
    request.sampling.max_tokens = 24 + i % 3;
    request.sampling.temperature = i % 4 == 3 ? 0.7f : 1.0f;
    request.sampling.logprobs = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

// What is drawn depends on seed and position, not on who else is there.
TEST_P(Drawn, alone_as_in_a_batch) {
  const auto engine = start(toy_config(GetParam().kind, 3));
  ASSERT_NE(engine, nullptr);
  const std::vector<GenerateRequest> requests = mixed_requests();
  const auto together = generate_all(*engine, requests);
  ASSERT_EQ(together.size(), requests.size());
  std::set<std::string> distinct;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = generate_all(*engine, {requests[i]});
    EXPECT_EQ(fingerprint(alone.at(0)), fingerprint(together[i])) << i;
    distinct.insert(fingerprint(together[i]));
  }
  EXPECT_EQ(distinct.size(), requests.size());
  EXPECT_GT(engine->state().drafts.accepted, 100);
}

INSTANTIATE_TEST_SUITE_P(Families, Drawn,
                         testing::Values(Family{"dflash2", DraftKind::kDflash2},
                                         Family{"dspark", DraftKind::kDspark}),
                         [](const auto& info) { return info.param.name; });

// ---- Drafts that are chosen ---------------------------------------------------------------------

constexpr Seeds kChosenSeeds = {.first = 1, .end = 1 + kNumChosen};

const std::map<int32_t, int>& plain_counts() {
  static const auto counts = sample(toy_config(kPlain.kind, 0), kNoFilters, kChosenSeeds).counts;
  return counts;
}

class Chosen : public testing::TestWithParam<Family> {};

TEST_P(Chosen, at_a_fixed_length) {
  const Outcome outcome = sample(toy_config(GetParam().kind, 3), kNoFilters, kChosenSeeds);
  EXPECT_GT(p_value(outcome.counts, exact_joint(kNoFilters)), kSmallestPValue);
  EXPECT_EQ(outcome.counts, plain_counts());
  expect_all_ends(outcome.drafts, kNumChosen);
}

TEST_P(Chosen, at_adaptive_lengths) {
  const Outcome outcome = sample_adaptively(GetParam().kind, kChosenSeeds);
  EXPECT_GT(p_value(outcome.counts, exact_joint(kNoFilters)), kSmallestPValue);
  EXPECT_EQ(outcome.counts, plain_counts());
}

INSTANTIATE_TEST_SUITE_P(Families, Chosen,
                         testing::Values(Family{"dflash", DraftKind::kDflash},
                                         Family{"mtp", DraftKind::kMtp},
                                         Family{"ngram", DraftKind::kNgram}),
                         [](const auto& info) { return info.param.name; });

// ---- Without drafts -----------------------------------------------------------------------------

class Undrafted : public testing::TestWithParam<Family> {};

TEST_P(Undrafted, has_the_enumerated_distribution_and_no_other) {
  const Outcome outcome = sample(toy_config(GetParam().kind, 0), kNoFilters, {});
  EXPECT_GT(p_value(outcome.counts, exact_joint(kNoFilters)), kSmallestPValue);
  // The test can fail: it does for a temperature that is 5 % off.
  EXPECT_LT(p_value(outcome.counts, exact_joint({.temperature = 1.05f})), kSmallestPValue);
}

INSTANTIATE_TEST_SUITE_P(Families, Undrafted, testing::Values(kPlain),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dhs
