// The planner's numbers are what the accounting admits.
#include "dhisparse/capacity_plan.h"

#include <gtest/gtest.h>

#include "engine/engine_plan.h"
#include "engine_client.h"

namespace dhs {
namespace {

// Whether `count` requests of `context` tokens are all on the device at once, whole.
bool holds(const EngineConfig& config, ResidencyMode mode, int64_t context, int64_t count) {
  const EnginePlan plan = *make_plan(config);
  ResidencyConfig residency = config.residency;
  residency.mode = mode;
  KvManager kv(plan.geometry, plan.capacity, residency);
  if (count > 0 && !kv.fits(context).ok()) return false;
  std::vector<SequenceMemory> requests;
  for (int64_t i = 0; i < count; ++i) {
    // As the scheduler does: what it has reached first, the rest as it grows.
    const int64_t begin = std::max<int64_t>(1, context / 2);
    if (!kv.can_admit({.max_tokens = context, .device_tokens = begin})) return false;
    requests.push_back(*kv.admit({.max_tokens = context, .device_tokens = begin}));
    if (!kv.cover(requests.back(), context, begin)) return false;
    kv.rebalance();
    EXPECT_EQ(kv.check_invariants(), "");
  }
  return true;
}

void expect_plan_is_what_fits(const EngineConfig& config) {
  const auto plan = plan_capacity(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->modes.size(), 3u);
  for (const ModeCapacity& mode : plan->modes) {
    ASSERT_EQ(mode.contexts.size(), 2u) << "1024, and the model's 2048";
    for (const ContextCapacity& capacity : mode.contexts) {
      EXPECT_TRUE(holds(config, mode.mode, capacity.context, capacity.max_requests))
          << name_of(mode.mode) << " " << capacity.context;
      EXPECT_FALSE(holds(config, mode.mode, capacity.context, capacity.max_requests + 1))
          << name_of(mode.mode) << " " << capacity.context;
    }
  }
}

TEST(CapacityPlan, says_what_the_accounting_admits_and_not_one_more) {
  EngineConfig config = demo_config();
  config.residency.fixed_rows_per_request = 700;
  for (const int64_t host_mib : {8, 64}) {
    for (const int64_t device_mib : {3, 24}) {
      config.host.pool_bytes = host_mib << 20;
      config.device.memory_bytes = device_mib << 20;
      expect_plan_is_what_fits(config);
    }
  }
}

TEST(CapacityPlan, names_the_tier_that_is_full) {
  EngineConfig config = demo_config();
  config.host.pool_bytes = int64_t{8} << 20;
  config.device.memory_bytes = int64_t{1} << 30;
  const auto held_by_host = plan_capacity(config);
  ASSERT_TRUE(held_by_host.ok()) << held_by_host.status();
  for (const ModeCapacity& mode : held_by_host->modes) {
    EXPECT_EQ(mode.contexts.front().limit, CapacityLimit::kHostPool) << name_of(mode.mode);
    EXPECT_GT(mode.contexts.front().max_requests, 0);
  }
  config = demo_config();
  config.host.pool_bytes = int64_t{1} << 30;
  config.device.memory_bytes = int64_t{4} << 20;
  const auto plan = plan_capacity(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->modes[0].contexts.front().limit, CapacityLimit::kProtectedRows);
  EXPECT_EQ(plan->modes[1].contexts.front().limit, CapacityLimit::kFixedRows);
  EXPECT_EQ(plan->modes[2].contexts.front().limit, CapacityLimit::kWholeRows);
}

TEST(CapacityPlan, of_a_device_too_small_for_one_request_is_zero_with_its_reason) {
  EngineConfig config = demo_config();
  config.device.memory_bytes = int64_t{1} << 20;
  const auto plan = plan_capacity(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->modes[2].contexts.back().max_requests, 0);
  EXPECT_EQ(plan->modes[2].contexts.back().limit, CapacityLimit::kWholeRows);
}

TEST(CapacityPlan, counts_every_rank_that_holds_requests_of_its_own) {
  EngineConfig config = demo_config();
  const int64_t alone = plan_capacity(config)->modes[0].contexts.front().max_requests;
  config.parallel.num_ranks = 2;
  config.parallel.mode = ParallelMode::kData;
  EXPECT_EQ(plan_capacity(config)->modes[0].contexts.front().max_requests, 2 * alone);
  EXPECT_EQ(plan_capacity(config)->max_running, 2 * config.scheduler.max_running);
}

TEST(CapacityPlan, refuses_what_the_engine_refuses) {
  EngineConfig config = demo_config();
  config.model.max_context = 10000;
  EXPECT_EQ(plan_capacity(config).status().message(),
            "model.max_context is 10000, the checkpoint's max_position_embeddings is 8192");
}

}  // namespace
}  // namespace dhs
