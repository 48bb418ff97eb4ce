// No request ever reads a row of another: blocks are poisoned when they are retired, and every
// selected row is searched for canaries and compared with what its own sequence wrote.
#include <gtest/gtest.h>

#include "store_world.h"

namespace dhs {
namespace {

// Emulated kernels take their time.
constexpr int kNumHeirs = test::kOnCuda ? 3 : 25;
constexpr int kNumRounds = test::kOnCuda ? 4 : 15;

constexpr int kNumGroups = 3;

TEST(Isolation, a_retired_block_loses_its_slots_and_others_keep_theirs) {
  StoreWorld world({});
  // One long request keeps every row cache short of chunks, so that none is given up.
  ASSERT_TRUE(world.admit(1000).has_value());
  const int kept = *world.admit(30);
  const int gone = *world.admit(70);
  world.step({{kept, 30}});
  world.step({{gone, 70}});
  for (int group = 0; group < kNumGroups; ++group) {
    ASSERT_EQ(world.resident_rows(group), 100);
  }
  world.release(gone);
  world.settle();
  for (int group = 0; group < kNumGroups; ++group) {
    EXPECT_EQ(world.resident_rows(group), 30) << group;
  }
  // A slot that survived its block would now differ from the poisoned host row.
  EXPECT_EQ(world.store().check_invariants(), "");
}

TEST(Isolation, a_slot_left_behind_would_be_found) {
  StoreWorld world({});
  const int sequence = *world.admit(30);
  world.step({{sequence, 30}});
  world.store().poison(HostBlockId(0), kCanary);  // without retiring it
  EXPECT_NE(world.store().check_invariants().find("differs from host row"), std::string::npos);
}

TEST(Isolation, a_retired_blocks_evicted_rows_are_not_fetched_again) {
  StoreWorld world({.residency = {ResidencyMode::kFixed, 16}});
  const int kept = *world.admit(30);
  const int gone = *world.admit(150);
  world.step({{kept, 10}});
  for (int i = 0; i < 12; ++i) world.step({{gone, 12}});
  for (int group = 0; group < kNumGroups; ++group) {
    ASSERT_GT(world.counters(group).resolve.evicted, 0) << group;
  }
  world.release(gone);
  world.settle();
  for (int group = 0; group < kNumGroups; ++group) world.store().refill(group, 1000);
  for (int group = 0; group < kNumGroups; ++group) {
    EXPECT_GT(world.store().capacity_rows(group), 10) << group;
    EXPECT_EQ(world.resident_rows(group), 10) << group;
  }
  EXPECT_EQ(world.store().check_invariants(), "");
}

TEST(Isolation, sequences_that_inherit_blocks_never_see_canaries_nor_foreign_rows) {
  for (ResidencyMode mode :
       {ResidencyMode::kAdaptive, ResidencyMode::kFixed, ResidencyMode::kResident}) {
    StoreWorld world({.residency = {mode, 12}, .num_host_blocks = 3, .num_chunks = 40});
    for (int heir = 0; heir < kNumHeirs; ++heir) {
      const std::optional<int> sequence = world.admit(190);
      ASSERT_TRUE(sequence.has_value());
      world.step({{*sequence, 1 + heir % 80}});
      for (int i = 0; i < 4; ++i) world.step({{*sequence, 1 + 7 * i}});
      if (HasFatalFailure()) return;
      world.release(*sequence);
    }
  }
}

TEST(Isolation, blocks_handed_on_within_one_boundary_are_clean_for_every_heir) {
  StoreWorld world({.num_host_blocks = 6, .num_chunks = 40});
  std::vector<int> sequences = {*world.admit(128), *world.admit(128), *world.admit(128)};
  for (int round = 0; round < kNumRounds; ++round) {
    std::vector<StepPart> parts;
    for (int sequence : sequences) parts.push_back({sequence, 9 + round});
    world.step(parts);
    if (HasFatalFailure()) return;
    // Two leave and two come before the store hears of either.
    world.release(sequences[round % 3]);
    world.release(sequences[(round + 1) % 3]);
    sequences[round % 3] = *world.admit(128);
    sequences[(round + 1) % 3] = *world.admit(128);
    sequences[(round + 2) % 3] = [&] {
      world.release(sequences[(round + 2) % 3]);
      return *world.admit(128);
    }();
  }
}

}  // namespace
}  // namespace dhs
