// Seeded whole-system simulation (random_world.h).
#include "random_world.h"

namespace dhs::sim {
namespace {

TEST(SchedulerSimulation, invariants_hold_over_a_hundred_thousand_steps) {
  int64_t stopped = 0, cancelled = 0, expired = 0, most_running = 0;
  int64_t parked = 0, preempted = 0, cached_tokens = 0, restored = 0, accepted = 0, refilled = 0;
  int64_t pages_restored = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    Simulation simulation(mixed_world(seed));
    simulation.run(9000);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
    stopped += simulation.num_finished(FinishReason::kStop);
    cancelled += simulation.num_finished(FinishReason::kCancelled);
    expired += simulation.num_finished(FinishReason::kDeadline);
    most_running = std::max(most_running, simulation.most_running());
    parked += simulation.num_parked();
    preempted += simulation.num_preemptions();
    cached_tokens += simulation.num_cached_tokens();
    restored += simulation.num_restored();
    pages_restored += simulation.num_pages_restored();
    accepted += simulation.num_accepted();
    refilled += simulation.num_refilled();
  }
  // The worlds must have seen what they are meant to test.
  EXPECT_GT(stopped, 0);
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(expired, 0);
  EXPECT_EQ(most_running, 6);
  EXPECT_GT(preempted, 100);
  EXPECT_GT(parked, preempted) << "nobody was parked by a pause";
  EXPECT_GT(cached_tokens, 10000);
  EXPECT_GT(restored, 1000);
  EXPECT_GT(pages_restored, 1000);
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refilled, 1000);
}

TEST(SchedulerSimulation, requests_live_through_other_limits_and_residency) {
  int64_t changes = 0, parked = 0, requests = 0;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    World world = mixed_world(seed);
    world.changes = true;
    Simulation simulation(world);
    simulation.run(3000);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
    changes += simulation.num_changes();
    parked += simulation.num_parked();
    requests += simulation.num_requests();
  }
  EXPECT_GT(changes, 500);
  EXPECT_GT(parked, 500);
  EXPECT_GT(requests, 500);
}

TEST(SchedulerSimulation, the_same_seed_gives_the_same_trace) {
  Simulation first({.seed = 5});
  Simulation second({.seed = 5});
  Simulation other({.seed = 6});
  first.run(2000);
  second.run(2000);
  other.run(2000);
  EXPECT_EQ(first.trace(), second.trace());
  EXPECT_NE(first.trace(), other.trace());
}

}  // namespace
}  // namespace dhs::sim
