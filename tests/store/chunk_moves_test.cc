// Chunks change owners at step boundaries: what must stay stays, with its bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "store_world.h"

namespace dhs {
namespace {

using Kind = ChunkMove::Kind;

constexpr int kNumGroups = 3;

// Enough for one request of 192 tokens with all its rows: 3 index chunks of one item each, and
// 3 + 10 + 6 chunks of 64, 21 and 32 slots. A second request can only take chunks away.
WorldShape full_with_one() { return {.num_chunks = 22}; }

int64_t count(const std::vector<ChunkMove>& moves, Kind kind) {
  return std::count_if(moves.begin(), moves.end(),
                       [&](const ChunkMove& move) { return move.kind == kind; });
}

StoreWorld::Choice select_exactly(std::vector<int32_t> wanted) {
  return [wanted](int, int, int32_t) { return wanted; };
}

class ChunkMoves : public testing::Test {
 protected:
  // The first request fills the pool. The newest segment's slots are used first, so in group 1
  // positions 0..20 lie in the last segment, 21..41 in the one before, and 20 slots of segment 0
  // are free.
  void SetUp() override {
    first_ = *world_.admit(192);
    world_.step({{first_, 95}});
    world_.step({{first_, 95}});
    for (int group = 0; group < kNumGroups; ++group) {
      ASSERT_EQ(world_.resident_rows(group), 190);
    }
  }

  StoreWorld world_{full_with_one()};
  int first_ = 0;
};

// Six of them lie in the segments that an admission takes away.
const std::vector<int32_t> kHot = {0, 5, 20, 21, 30, 41, 100, 190};

TEST_F(ChunkMoves, protected_rows_of_a_released_chunk_stay_resident_with_their_bytes) {
  world_.step({{first_, 1}}, select_exactly(kHot));
  ASSERT_TRUE(world_.admit(128).has_value());
  world_.step({{.sequence = first_, .num_new = 0, .rewind = 1}}, select_exactly(kHot));
  EXPECT_EQ(count(world_.moves(), Kind::kReleaseRows), 2);
  EXPECT_EQ(count(world_.moves(), Kind::kGrowIndex), 2);
  EXPECT_EQ(world_.store().capacity_rows(1), 8 * 21);
  for (int group = 0; group < kNumGroups; ++group) EXPECT_EQ(world_.missed(group), 0) << group;
}

TEST_F(ChunkMoves, a_released_chunk_takes_only_rows_of_its_group_along_and_they_are_counted) {
  world_.step({{first_, 1}}, select_exactly(kHot));
  ASSERT_TRUE(world_.admit(128).has_value());
  world_.settle();
  EXPECT_EQ(world_.resident_rows(0), 191);
  EXPECT_EQ(world_.resident_rows(2), 191);
  EXPECT_EQ(world_.counters(0).released, 0);
  EXPECT_EQ(world_.resident_rows(1) + world_.counters(1).released, 191);
  EXPECT_GE(world_.counters(1).released, 191 - 168);
  EXPECT_EQ(world_.store().check_invariants(), "");
}

// Protected rows go first even where every slot that stays is taken.
TEST_F(ChunkMoves, protected_rows_push_others_out_when_no_slot_is_free) {
  // Six query rows protect both segments whole; 42 rows cannot go into 19 free slots.
  const auto eight_each = [&](int, int, int32_t position) {
    const int32_t first = (position - 185) * 7;
    return std::vector<int32_t>{first,     first + 1, first + 2, first + 3,
                                first + 4, first + 5, first + 6, position};
  };
  world_.step({{.sequence = first_, .num_new = 1, .rewind = 5}}, eight_each);
  ASSERT_TRUE(world_.admit(128).has_value());
  world_.step({{.sequence = first_, .num_new = 0, .rewind = 6}}, eight_each);
  EXPECT_EQ(count(world_.moves(), Kind::kReleaseRows), 2);
  for (int group = 0; group < kNumGroups; ++group) EXPECT_EQ(world_.missed(group), 0) << group;
  EXPECT_EQ(world_.resident_rows(1), 168);
}

TEST_F(ChunkMoves, dropped_rows_are_fetched_again_when_they_are_wanted) {
  world_.step({{first_, 1}}, select_exactly({90, 91, 92, 93, 94, 95, 96, 190}));
  ASSERT_TRUE(world_.admit(128).has_value());
  for (int32_t first : {0, 7, 14, 21, 28, 35}) {
    world_.step(
        {{.sequence = first_, .num_new = 0, .rewind = 1}},
        select_exactly({first, first + 1, first + 2, first + 3, first + 4, first + 5, first + 6}));
  }
  EXPECT_EQ(world_.counters(0).resolve.missed, 0);
  EXPECT_GE(world_.counters(1).resolve.missed, 191 - 168);
  EXPECT_EQ(world_.counters(2).resolve.missed, 0);
}

TEST_F(ChunkMoves, chunks_that_come_back_hold_rows_again) {
  world_.step({{first_, 1}});
  const int second = *world_.admit(128);
  world_.step({{second, 20}});
  world_.release(second);
  world_.settle();
  EXPECT_EQ(count(world_.moves(), Kind::kReleaseIndex), 2);
  EXPECT_EQ(world_.store().capacity_rows(1), 10 * 21);
  const std::vector<int32_t> wanted = {1, 3, 8, 22, 25, 33, 40};
  for (int i = 0; i < 2; ++i) {
    world_.step({{.sequence = first_, .num_new = 0, .rewind = 1}}, select_exactly(wanted));
  }
  for (int group = 0; group < kNumGroups; ++group) EXPECT_EQ(world_.missed(group), 0) << group;
}

TEST_F(ChunkMoves, what_a_chunk_took_along_is_refilled_when_one_comes_back) {
  world_.step({{first_, 1}}, select_exactly(kHot));
  const int second = *world_.admit(128);
  world_.settle();
  world_.release(second);
  world_.settle();
  ASSERT_EQ(world_.store().capacity_rows(1), 10 * 21);
  const int64_t released = world_.counters(1).released;
  ASSERT_GE(released, 191 - 168);
  for (int group = 0; group < kNumGroups; ++group) world_.store().refill(group, 5);
  EXPECT_EQ(world_.counters(1).refilled, 5);
  for (int group = 0; group < kNumGroups; ++group) world_.store().refill(group, 1000);
  EXPECT_EQ(world_.counters(0).refilled, 0) << "it lost nothing";
  EXPECT_EQ(world_.counters(1).refilled, released);
  EXPECT_EQ(world_.counters(1).refilled_bytes,
            released * world_.store().geometry().groups[1].record_bytes);
  EXPECT_EQ(world_.resident_rows(1), 191);
  EXPECT_EQ(world_.store().check_invariants(), "");
  for (int32_t first : {0, 7, 14, 21, 28, 35}) {
    world_.step(
        {{.sequence = first_, .num_new = 0, .rewind = 1}},
        select_exactly({first, first + 1, first + 2, first + 3, first + 4, first + 5, first + 6}));
  }
  EXPECT_EQ(world_.counters(1).resolve.missed, 0);
  EXPECT_EQ(world_.counters(1).fetched_bytes, 0);
}

TEST_F(ChunkMoves, many_boundaries_without_a_step_between_keep_the_protected_rows) {
  world_.step({{first_, 1}}, select_exactly(kHot));
  for (int i = 0; i < 5; ++i) {
    const int other = *world_.admit(128);
    world_.settle();
    world_.release(other);
    world_.settle();
  }
  EXPECT_GT(world_.num_released_chunks(), 0);
  world_.step({{.sequence = first_, .num_new = 0, .rewind = 1}}, select_exactly(kHot));
  for (int group = 0; group < kNumGroups; ++group) EXPECT_EQ(world_.missed(group), 0) << group;
}

// A step's own tokens are protected too, selected or not: they will be wanted soonest of all.
TEST(NewRows, of_the_latest_step_push_others_out_of_the_chunks_that_stay) {
  // Two requests with all their rows: 2 index chunks, and 2 + 4 + 3 for the row caches. The second
  // one's rows are alone in the chunks that came with it; the first one fills the others.
  StoreWorld world({.num_chunks = 11});
  const int older = *world.admit(63);
  world.step({{older, 63}});
  const int newer = *world.admit(21);
  world.step({{newer, 21}}, select_exactly({0}));
  ASSERT_TRUE(world.admit(64).has_value());
  const StepPart last_again{.sequence = newer, .num_new = 0, .rewind = 1};
  for (int32_t first : {1, 7, 13}) {
    world.step({last_again}, select_exactly({first, first + 1, first + 2, first + 3, first + 4,
                                             first + 5, first + 6, first + 7}));
    EXPECT_EQ(world.missed(0), 0);
  }
  EXPECT_EQ(world.store().capacity_rows(0), 64) << "the third request took no chunk of group 0";
  EXPECT_EQ(world.counters(0).released, 20);
}

// The mode that promises every row of a running request on the device, whoever comes and goes.
TEST(ResidentMode, never_fetches_a_row_of_a_running_request) {
  StoreWorld world({.residency = {ResidencyMode::kResident}});
  const int kept = *world.admit(100);
  const int gone = *world.admit(100);
  world.step({{kept, 90}});
  world.step({{gone, 90}});
  world.release(gone);
  for (int i = 0; i < 10; ++i) world.step({{kept, 1}});
  for (int group = 0; group < kNumGroups; ++group) {
    EXPECT_EQ(world.counters(group).resolve.missed, 0) << group;
  }
}

// step() compares every running sequence's pages in both tiers.
TEST(IndexItems, outlive_the_coming_and_going_of_other_sequences_segments) {
  StoreWorld world({.num_chunks = 40});
  const int kept = *world.admit(190);
  int other = *world.admit(100);
  for (int i = 0; i < 8; ++i) {
    world.step({{kept, 10}, {other, 12}});
    world.release(other);
    other = *world.admit(60 + 30 * (i % 3));
    if (HasFatalFailure()) return;
  }
}

TEST(IndexItems, a_key_written_anew_replaces_the_old_one_and_no_other) {
  StoreWorld world({.index_format = RowFormat::kFp8});
  const int sequence = *world.admit(150);
  world.step({{sequence, 90}});
  world.step({{.sequence = sequence, .num_new = 5, .rewind = 40}});
  world.step({{.sequence = sequence, .num_new = 0, .rewind = 1}});
}

}  // namespace
}  // namespace dhs
