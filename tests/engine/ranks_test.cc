// Several ranks on the CPU: their tokens are those of one rank, their bits do not depend on memory
// or company, tensor ranks stay equal, and a lost rank holds nobody up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/ranks_executor.h"
#include "engine_client.h"
#include "rank_parts.h"

namespace dhs {
namespace {

using testing::HasSubstr;

struct World {
  int num_ranks = 1;
  ParallelMode mode = ParallelMode::kTensor;
  int64_t memory_kib = 24 << 10;
  int max_batched_tokens = 128;
  DraftConfig draft = {};
};

constexpr int64_t kTightKib = 1600;  // little more than the longest request needs alone

EngineConfig config_of(const World& world) {
  EngineConfig config = demo_config();
  config.parallel = {.num_ranks = world.num_ranks, .mode = world.mode};
  config.device.backend = BackendKind::kCpu;
  config.device.memory_bytes = world.memory_kib << 10;
  config.host.pool_bytes = int64_t{32} << 20;
  config.scheduler.max_running = 4;
  config.scheduler.max_batched_tokens = world.max_batched_tokens;
  config.draft = world.draft;
  return config;
}

// Contexts of up to three times the top-k of 256.
std::vector<GenerateRequest> requests(std::vector<int64_t> lengths = {760, 40, 257, 90, 20}) {
  std::vector<GenerateRequest> all;
  for (size_t i = 0; i < lengths.size(); ++i) {
    GenerateRequest request;
    request.prompt = some_prompt(static_cast<uint32_t>(300 + i), lengths[i]);
    request.sampling.max_tokens = 8;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = true;
    request.sampling.num_top_logprobs = 2;
    request.sampling.temperature = 0;
    request.sampling.seed = 5 + i;
    all.push_back(std::move(request));
  }
  return all;
}

struct Outcome {
  std::vector<std::vector<TokenOutput>> outputs;
  std::vector<std::string> prints;
  EngineState state;
};

Outcome run(const World& world, bool reversed = false) {
  auto engine = start_engine(config_of(world));
  EXPECT_TRUE(engine.ok()) << engine.status();
  if (!engine.ok()) return {};
  std::vector<GenerateRequest> all = requests();
  if (reversed) std::reverse(all.begin(), all.end());
  auto outputs = generate_all(**engine, all);
  if (reversed) std::reverse(outputs.begin(), outputs.end());
  Outcome outcome;
  for (const auto& output : outputs) outcome.prints.push_back(fingerprint(output));
  outcome.outputs = std::move(outputs);
  outcome.state = (*engine)->state();
  return outcome;
}

const Outcome& one_rank() {
  static const Outcome outcome = run({});
  return outcome;
}

// Ranks add in another order, so logprobs differ by rounding; where the two best tokens are closer
// than that either may be drawn, and then there is nothing more to compare.
constexpr float kRounding = 0.03f;

bool is_equal_but_for_rounding(const std::vector<TokenOutput>& tokens,
                               const std::vector<TokenOutput>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(tokens[i].logprob - expected[i].logprob) > kRounding) return false;
    if (tokens[i].token == expected[i].token) continue;
    const std::vector<TokenLogprob>& top = expected[i].top;
    return top[0].logprob - top[1].logprob <= kRounding && tokens[i].token == top[1].token;
  }
  return true;
}

class Ranks : public testing::TestWithParam<std::tuple<ParallelMode, int>> {
 protected:
  static World world() {
    return {.num_ranks = std::get<1>(GetParam()), .mode = std::get<0>(GetParam())};
  }
};

// Each rank computes the whole of a block draft, of the requests that it works on; an MTP layer is
// shared out as those of the target are.
TEST_P(Ranks, verify_drafts_without_changing_a_bit) {
  const Outcome plain = run(world());
  const std::pair<DraftKind, const char*> drafts[] = {
      {DraftKind::kDflash2, "dflash2"}, {DraftKind::kDspark, "dspark"}, {DraftKind::kMtp, "mtp"}};
  for (const auto& [kind, name] : drafts) {
    World drafting = world();
    if (kind == DraftKind::kMtp && drafting.mode == ParallelMode::kData) continue;
    drafting.draft = {.kind = kind,
                      .path = absl::StrCat(DHS_SOURCE_DIR "/tests/models/demo/", name),
                      .max_tokens = 4};
    drafting.memory_kib = 2 * kTightKib;
    const Outcome drafted = run(drafting);
    EXPECT_EQ(drafted.prints, plain.prints) << name;
    EXPECT_GT(drafted.state.drafts.verified, 40) << name;
  }
}

TEST(DataRanks, refuse_an_mtp_draft_where_each_has_requests_of_its_own) {
  const std::string path = DHS_SOURCE_DIR "/tests/models/demo/mtp";
  const auto engine = start_engine(config_of({.num_ranks = 2,
                                              .mode = ParallelMode::kData,
                                              .draft = {.kind = DraftKind::kMtp, .path = path}}));
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("parallel.mode"));
}

TEST_P(Ranks, draw_the_tokens_that_one_rank_draws_whatever_is_resident) {
  ASSERT_EQ(one_rank().outputs.size(), 5u);
  const Outcome roomy = run(world());
  // Where two experts score the same but for rounding, a prompt may go another way altogether: of
  // 40 like these, one does between one rank and two, and another one between AVX2 and none.
  int num_equal = 0;
  for (size_t i = 0; i < 5; ++i) {
    ASSERT_EQ(roomy.outputs[i].size(), one_rank().outputs[i].size());
    num_equal += is_equal_but_for_rounding(roomy.outputs[i], one_rank().outputs[i]) ? 1 : 0;
  }
  EXPECT_GE(num_equal, 4);
  World tight = world();
  tight.memory_kib = kTightKib;
  tight.max_batched_tokens = 48;
  const Outcome squeezed = run(tight, true);
  EXPECT_EQ(squeezed.prints, roomy.prints);
  EXPECT_GT(num_fetched(squeezed.state), 100) << "nothing is proven unless rows came back";
}

INSTANTIATE_TEST_SUITE_P(Modes, Ranks,
                         testing::Combine(testing::Values(ParallelMode::kTensor,
                                                          ParallelMode::kData),
                                          testing::Values(2, 4)),
                         [](const auto& info) {
                           const bool is_data = std::get<0>(info.param) == ParallelMode::kData;
                           return absl::StrCat(is_data ? "data_" : "tensor_",
                                               std::get<1>(info.param));
                         });

TEST(DataRanks, share_requests_and_report_the_memory_of_all) {
  const Outcome two = run({.num_ranks = 2, .mode = ParallelMode::kData});
  EXPECT_EQ(two.state.peak_running_requests, 5) << "4 may run on each";
  EXPECT_EQ(two.state.device_pool_bytes, 2 * one_rank().state.device_pool_bytes);
  EXPECT_THAT(two.state.device, HasSubstr("2 data parallel ranks: cpu"));
}

// ---- Step by step -------------------------------------------------------------------------------

class Driver {
 public:
  explicit Driver(const EngineConfig& config)
      : parts_(make_rank_parts(config)), scheduler_(config.scheduler, parts_.kv_pointers(), {}) {}

  void enqueue(std::vector<GenerateRequest> all) {
    for (GenerateRequest& request : all) scheduler_.enqueue(RequestId(++num_requests_), request);
  }
  absl::Status step() {
    std::vector<RequestUpdate> updates;
    const StepPlan plan = scheduler_.plan(absl::UnixEpoch(), updates);
    for (size_t r = 0; r < plan.ranks.size(); ++r) {
      for (const SequenceWork& work : plan.ranks[r].work) rank_of_[work.request.value].insert(r);
    }
    executor().submit(plan);
    auto result = executor().collect();
    if (!result.ok()) return result.status();
    scheduler_.commit(plan, *result, updates);
    EXPECT_EQ(scheduler_.check_invariants(), "");
    return absl::OkStatus();
  }
  RanksExecutor& executor() { return *parts_.executor; }
  bool idle() const { return scheduler_.idle(); }
  const std::map<uint64_t, std::set<size_t>>& rank_of() const { return rank_of_; }

 private:
  RankParts parts_;
  Scheduler scheduler_;
  uint64_t num_requests_ = 0;
  std::map<uint64_t, std::set<size_t>> rank_of_;
};

TEST(TensorRanks, hold_the_same_rows_in_the_same_slots_after_every_step) {
  Driver driver(config_of({.num_ranks = 4, .memory_kib = kTightKib, .max_batched_tokens = 64}));
  driver.enqueue(requests({300, 40, 290}));
  std::string before;
  while (!driver.idle()) {
    ASSERT_TRUE(driver.step().ok());
    const std::string first = driver.executor().rank(0).store().row_cache_state();
    EXPECT_NE(first, before) << "a step changes it";
    for (int rank = 1; rank < 4; ++rank) {
      KvStore& store = driver.executor().rank(rank).store();
      EXPECT_TRUE(store.row_cache_state() == first) << "rank " << rank;
      EXPECT_EQ(store.check_invariants(), "");
    }
    before = first;
  }
}

TEST(DataRanks, keep_a_request_on_its_rank_and_run_steps_without_rows) {
  Driver driver(config_of({.num_ranks = 2, .mode = ParallelMode::kData}));
  driver.enqueue(requests({70, 30, 20}));
  while (!driver.idle()) ASSERT_TRUE(driver.step().ok());
  driver.enqueue(requests({20}));
  while (!driver.idle()) ASSERT_TRUE(driver.step().ok());  // the other rank has nothing
  using testing::ElementsAre;
  using testing::Pair;
  EXPECT_THAT(driver.rank_of(),
              ElementsAre(Pair(1, ElementsAre(0)), Pair(2, ElementsAre(1)),
                          Pair(3, ElementsAre(testing::_)), Pair(4, ElementsAre(0))));
}

// ---- Failure ------------------------------------------------------------------------------------

TEST(RanksExecutor, fails_every_step_after_an_abort_and_waits_for_nobody) {
  for (ParallelMode mode : {ParallelMode::kTensor, ParallelMode::kData}) {
    Driver driver(config_of({.num_ranks = 2, .mode = mode}));
    driver.enqueue(requests({40, 60}));
    ASSERT_TRUE(driver.step().ok());
    driver.executor().communicator(1).abort();
    EXPECT_EQ(driver.step().code(), absl::StatusCode::kAborted);
  }
}

TEST(RanksExecutor, an_abort_in_the_middle_of_a_run_ends_the_requests_with_the_reason) {
  const EngineConfig config = config_of({.num_ranks = 2});
  RankParts parts = make_rank_parts(config);
  Communicator& second = parts.executor->communicator(1);
  ModelInfo info{.name = "ranks", .max_context = 2048, .vocab_size = 4096};
  EngineLoop engine(config, info, std::move(parts.kv), std::move(parts.executor));
  auto sink = std::make_shared<CollectingSink>();
  GenerateRequest endless = requests({40}).front();
  endless.sampling.max_tokens = 1900;
  ASSERT_TRUE(engine.submit(endless, sink).ok());
  sink->wait_for_tokens(3);
  second.abort();
  const Finished finished = sink->wait();
  EXPECT_EQ(finished.reason, FinishReason::kError);
  EXPECT_EQ(finished.error.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(finished.error.message()), HasSubstr("rank 1"));
  const auto refused = engine.submit(endless, std::make_shared<CollectingSink>());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("restart it"));
}

TEST(RanksExecutor, refuses_ranks_that_do_not_divide_the_model_and_names_its_sizes) {
  const auto tensor = start_engine(config_of({.num_ranks = 3}));
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tensor.status().message()),
              HasSubstr("parallel.ranks is 3, which does not divide this checkpoint: "
                        "n_routed_experts is 8, num_attention_heads is 8, "
                        "n_shared_experts * moe_intermediate_size is 160; "
                        "use a number of ranks that divides 8, or parallel.mode: data"));
  const auto data = start_engine(config_of({.num_ranks = 3, .mode = ParallelMode::kData}));
  EXPECT_THAT(std::string(data.status().message()),
              HasSubstr("n_routed_experts is 8; use a number of ranks that divides 8"));
}

}  // namespace
}  // namespace dhs
