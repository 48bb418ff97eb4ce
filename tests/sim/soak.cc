// A long seeded whole-system simulation (random_world.h), with progress.
//
//   sim_soak [STEPS]      1,000,000 by default
#include <cstdio>
#include <cstdlib>

#include "random_world.h"

namespace dhs::sim {
namespace {

constexpr int64_t kStepsPerWorld = 20000;
int64_t num_steps = 1000000;

TEST(Soak, no_invariant_is_violated) {
  int64_t requests = 0, parked = 0, cancelled = 0, cached_tokens = 0, accepted = 0;
  std::printf("%10s %10s %10s %10s %14s %10s\n", "steps", "requests", "parked", "cancelled",
              "cached tokens", "accepted");
  for (int64_t done = 0; done < num_steps; done += kStepsPerWorld) {
    const auto seed = static_cast<uint32_t>(1 + done / kStepsPerWorld);
    Simulation simulation(mixed_world(seed));
    simulation.run(kStepsPerWorld);
    if (HasFailure()) FAIL() << "seed " << seed;
    requests += simulation.num_requests();
    parked += simulation.num_parked();
    cancelled += simulation.num_finished(FinishReason::kCancelled);
    cached_tokens += simulation.num_cached_tokens();
    accepted += simulation.num_accepted();
    std::printf("%10ld %10ld %10ld %10ld %14ld %10ld\n", done + kStepsPerWorld, requests, parked,
                cancelled, cached_tokens, accepted);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace dhs::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) dhs::sim::num_steps = std::atoll(argv[1]);
  return RUN_ALL_TESTS();
}
