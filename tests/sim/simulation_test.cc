// Whole simulations, small enough for every step to be checked.
#include <gtest/gtest.h>

#include "dhisparse/counter_random.h"
#include "dhisparse/kv.h"
#include "dhisparse/scheduler.h"
#include "sim/capacity.h"
#include "sim/sim_executor.h"
#include "sim_world.h"

namespace dhs {
namespace {

using test::committed;
using test::small_config;

const std::vector<std::string> kDrafts = {"draft.num_tokens=3", "draft.acceptance=0.6",
                                          "draft.kv=1MiB"};

std::vector<std::string> with(std::vector<std::string> overrides,
                              const std::vector<std::string>& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

TEST(Simulation, gives_the_same_report_for_the_same_seed) {
  const std::vector<std::string> load = {"workload.changes=\"10:96 20:16\"", "run.series_steps=5"};
  const SimConfig config = small_config(with(kDrafts, load));
  ASSERT_TRUE(validate(config).ok()) << validate(config);
  const std::string first = report_json(run_simulation(config));
  EXPECT_EQ(first, report_json(run_simulation(config)));
  SimConfig other = config;
  other.run.seed = 2;
  EXPECT_NE(first, report_json(run_simulation(other)));
}

TEST(Simulation, says_that_it_is_simulated_and_of_what) {
  const std::string json = report_json(run_simulation(small_config()));
  EXPECT_NE(json.find("\"simulated\":true"), std::string::npos);
  for (const char* fact : {"\"hardware.name\":\"B200\"", "\"model.name\":\"GLM-5.3\"",
                           "\"workload.context\":\"12544\"", "\"run.sampled_groups\":\"2\"",
                           "\"residency.mode\":\"adaptive\"", "\"run.seed\":\"1\""}) {
    EXPECT_NE(json.find(fact), std::string::npos) << fact;
  }
}

TEST(Simulation, fetches_nothing_when_everything_is_resident) {
  const SimReport report = run_simulation(small_config({"residency.mode=resident"}));
  EXPECT_GT(report.rows.selected, 0);
  EXPECT_EQ(report.rows.missed, 0);
  EXPECT_EQ(report.times.fetch, 0);
}

TEST(Simulation, fetches_less_the_more_rows_are_cached) {
  double last = 1;
  for (const char* rows : {"257", "512", "1024", "2048"}) {
    const SimReport report =
        run_simulation(small_config({"residency.mode=fixed", "run.measured_steps=60",
                                     absl::StrCat("residency.fixed_rows_per_request=", rows)}));
    EXPECT_LT(report.rows.fetch_fraction(), last) << rows;
    last = report.rows.fetch_fraction();
  }
}

// What the locality says of a cache of 2k rows: 13.4 %, within the noise of few topic shifts.
TEST(Simulation, misses_what_its_locality_says_with_2k_rows) {
  const SimReport report = run_simulation(small_config(
      {"residency.mode=fixed", "run.measured_steps=800", "workload.output_tokens=2048"}));
  EXPECT_NEAR(report.rows.fetch_fraction(), 0.134, 0.015);
}

TEST(Simulation, reports_rates_that_follow_from_its_steps) {
  const SimReport report = run_simulation(small_config(kDrafts));
  EXPECT_NEAR(report.times.total(), report.step_time, 1e-12);
  EXPECT_NEAR(report.step_time * static_cast<double>(report.steps), report.seconds, 1e-9);
  const double tokens = report.mean_running * report.acceptance_length;
  EXPECT_NEAR(report.output_tokens_per_s_per_gpu, tokens / report.step_time, 1e-6);
  EXPECT_NEAR(report.tpot_mean, report.step_time / report.acceptance_length, 1e-9);
}

TEST(Simulation, accepts_as_many_drafts_as_the_acceptance_says) {
  const SimReport report = run_simulation(small_config(with(kDrafts, {"run.measured_steps=100"})));
  EXPECT_NEAR(report.acceptance_length, 1 + 0.6 + 0.36 + 0.216, 0.02);
}

TEST(Simulation, accepts_as_many_where_requests_and_drafts_differ) {
  const SimReport report = run_simulation(
      small_config(with(kDrafts, {"run.measured_steps=400", "draft.token_spread=0.8"})));
  EXPECT_NEAR(report.acceptance_length, 1 + 0.6 + 0.36 + 0.216, 0.04);
  EXPECT_NEAR(report.verified_drafts, 3, 0.05);
}

TEST(Simulation, adaptive_lengths_follow_what_drafts_are_worth) {
  const auto run = [](const std::vector<std::string>& more) {
    std::vector<std::string> settings =
        with(kDrafts, {"draft.adaptive=true", "run.warmup_steps=400", "run.measured_steps=200"});
    settings.insert(settings.end(), more.begin(), more.end());
    return run_simulation(small_config(settings));
  };
  const SimReport good = run({"draft.acceptance=0.9"});
  const SimReport bad = run({"draft.acceptance=0.01"});
  EXPECT_GT(good.verified_drafts, 2);
  EXPECT_LT(bad.verified_drafts, 0.7);
  const SimReport spread = run({"draft.acceptance=0.5", "draft.token_spread=1"});
  EXPECT_GT(spread.acceptance_length, 1);
  EXPECT_EQ(report_json(run({"draft.acceptance=0.5", "draft.token_spread=1"})),
            report_json(spread));
}

TEST(Simulation, draws_one_token_a_step_without_drafts) {
  EXPECT_EQ(run_simulation(small_config()).acceptance_length, 1);
}

TEST(Simulation, counts_only_the_requests_that_a_rank_stands_for) {
  const SimReport one = run_simulation(small_config({"workload.concurrency=1"}));
  const SimReport eight = run_simulation(small_config({"workload.concurrency=8"}));
  EXPECT_EQ(one.max_running, 1);
  EXPECT_EQ(eight.max_running, 1);
  // Fewer tokens reach the experts, so the step is shorter; the output is an eighth of that.
  EXPECT_LT(one.step_time, eight.step_time);
  EXPECT_NEAR(one.output_tokens_per_s_per_gpu * one.step_time * 8,
              eight.output_tokens_per_s_per_gpu * eight.step_time, 1e-6);
}

TEST(Simulation, starts_everybody_anew_when_outputs_are_short) {
  const SimReport report =
      run_simulation(small_config({"workload.output_tokens=8", "run.measured_steps=100"}));
  EXPECT_EQ(report.max_running, 4);
  EXPECT_GT(report.rows.missed, 0);
  EXPECT_EQ(report.num_preemptions, 0);
}

// ---- A load step --------------------------------------------------------------------------------

TEST(LoadStep, gives_memory_to_who_comes_in_the_next_step) {
  const SimReport report =
      run_simulation(small_config({"workload.changes=\"10:160\"", "run.series_steps=1"}));
  ASSERT_EQ(report.changes.size(), 1u);
  EXPECT_EQ(report.changes[0].admitted, 16);
  EXPECT_EQ(report.changes[0].steps_to_admit, 1);
  EXPECT_GT(report.changes[0].chunks_released, 0);
  ASSERT_EQ(report.series.size(), 30u);
  EXPECT_EQ(report.series[9].running, 4);
  EXPECT_EQ(report.series[11].running, 20);
  EXPECT_LT(report.series[11].cached_rows, report.series[9].cached_rows);
}

TEST(LoadStep, ends_requests_when_fewer_are_offered) {
  const SimReport report =
      run_simulation(small_config({"workload.changes=\"10:8\"", "run.series_steps=1"}));
  EXPECT_EQ(report.series[9].running, 4);
  EXPECT_EQ(report.series[10].running, 1);
}

// ---- Step by step -------------------------------------------------------------------------------

struct World {
  explicit World(const SimConfig& config)
      : capacity(*sim::plan_capacity(config)),
        kv(capacity.geometry, capacity.memory, config.residency),
        scheduler({.max_running = 64,
                   .max_batched_tokens = 1 << 30,
                   .prefill_chunk = 1 << 30,
                   .draft = {.num_tokens = config.draft.num_tokens,
                             .is_adaptive = config.draft.is_adaptive}},
                  {&kv}, {}),
        executor(config, capacity) {}

  void enqueue(uint64_t id, const SimConfig& config, int32_t max_tokens) {
    GenerateRequest request;
    request.prompt.resize(config.workload.context);
    request.sampling.max_tokens = max_tokens;
    request.sampling.seed = id;
    request.bypass_prefix_cache = true;
    scheduler.enqueue(RequestId(id), std::move(request));
  }

  // The updates of one step.
  std::vector<RequestUpdate> step() {
    std::vector<RequestUpdate> updates;
    const StepPlan plan = scheduler.plan(now, updates);
    const StepResult result = executor.execute(plan.ranks[0]);
    now += result.elapsed;
    scheduler.commit(plan, result, updates);
    for (const RequestUpdate& update : updates) {
      if (update.finished.has_value()) executor.forget(update.request);
    }
    return updates;
  }

  sim::Capacity capacity;
  KvManager kv;
  Scheduler scheduler;
  sim::SimExecutor executor;
  absl::Time now = absl::UnixEpoch();
};

// Requests of random lengths come and go; caches, accounting and scheduler stay sound.
void churn(const SimConfig& config, int num_steps) {
  World world(config);
  uint64_t next_id = 1;
  for (int step = 0; step < num_steps; ++step) {
    if (step % 3 == 0 && world.scheduler.num_queued() < 3) {
      const auto length = 1 + trace::random_below(7, next_id, 40);
      world.enqueue(next_id++, config, static_cast<int32_t>(length));
    }
    world.step();
    const sim::StepRecord& latest = world.executor.latest();
    ASSERT_EQ(world.scheduler.check_invariants(), "") << "step " << step;
    ASSERT_EQ(world.executor.caches().check_invariants(), "") << "step " << step;
    const KvUsage usage = world.kv.usage();
    for (int g = 0; g < config.run.sampled_groups; ++g) {
      ASSERT_EQ(world.executor.caches().num_slots(g),
                usage.chunks_rows[g] *
                    world.capacity.geometry.records_per_chunk(g, config.deployment.chunk_bytes));
    }
    ASSERT_LE(latest.rows.missed, latest.rows.needed);
    ASSERT_LE(latest.rows.needed, latest.rows.selected);
    ASSERT_EQ(latest.rows.selected,
              latest.num_rows * config.run.sampled_groups * config.model.top_k);
  }
  EXPECT_GT(next_id, 10u);
}

TEST(SimExecutor, keeps_every_invariant_while_requests_come_and_go) {
  churn(small_config({"workload.output_tokens=64"}), 90);
}

TEST(SimExecutor, keeps_every_invariant_with_drafts_and_a_fixed_buffer) {
  churn(small_config(with(kDrafts, {"residency.mode=fixed", "workload.output_tokens=64"})), 60);
}

TEST(SimExecutor, verifies_drafts_and_draws_as_many_tokens_as_were_asked_for) {
  const SimConfig config = small_config(kDrafts);
  World world(config);
  world.enqueue(1, config, 50);
  int64_t num_tokens = 0;
  int64_t num_verify_rows = 0;
  for (int step = 0; step < 60; ++step) {
    for (const RequestUpdate& update : world.step()) {
      num_tokens += std::ssize(update.tokens);
      EXPECT_LE(std::ssize(update.tokens), 4);
      if (update.finished.has_value()) {
        EXPECT_EQ(update.finished->reason, FinishReason::kLength);
        EXPECT_EQ(update.finished->usage.rows_selected,
                  num_verify_rows * config.run.sampled_groups * config.model.top_k +
                      world.executor.latest().rows.selected);
      }
    }
    num_verify_rows += world.executor.latest().num_rows;
    if (world.scheduler.idle()) break;
  }
  EXPECT_TRUE(world.scheduler.idle());
  EXPECT_EQ(num_tokens, 50);
}

TEST(SimExecutor, takes_as_many_passes_as_a_small_row_cache_needs) {
  // Locality so bad that 4 query rows want more than the rows that are reckoned with.
  const SimConfig config = small_config(
      with(kDrafts, {"residency.mode=fixed", "residency.fixed_rows_per_request=1",
                     "workload.concurrency=64", "locality.regime=custom", "locality.at_k=0.42",
                     "locality.at_2k=0.3", "locality.at_4k=0.2"}));
  World world(config);
  for (uint64_t id = 1; id <= 8; ++id) world.enqueue(id, config, 64);
  for (int step = 0; step < 5; ++step) world.step();
  const sim::StepRecord& latest = world.executor.latest();
  EXPECT_EQ(latest.num_rows, 32);
  EXPECT_GT(latest.rows.needed, world.executor.caches().num_slots(0));
  EXPECT_EQ(world.executor.caches().check_invariants(), "");
}

}  // namespace
}  // namespace dhs
