// Query rows whose selections together exceed a row cache take turns in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store_world.h"

namespace dhs {
namespace {

// Group 1 has one chunk of 21 slots; a row selects 8.
WorldShape one_chunk_each() { return {.residency = {ResidencyMode::kFixed, 1}}; }

// The eight rows just below the position, itself among them: every row of a step wants others.
std::vector<int32_t> newest_eight(int, int, int32_t position) {
  std::vector<int32_t> chosen;
  for (int32_t p = std::max(0, position - 7); p <= position; ++p) chosen.push_back(p);
  return chosen;
}

// Eight rows spread over everything visible.
std::vector<int32_t> spread_eight(int, int, int32_t position) {
  std::vector<int32_t> chosen;
  for (int32_t i = 1; i <= 8; ++i) chosen.push_back((position * i) / 8);
  return chosen;
}

TEST(Tiles, are_cut_where_the_worst_case_exceeds_the_cache) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(190);
  world.step({{sequence, 90}});
  // Past position 90 a row adds 8 to the worst case: two rows fit in 21 slots, eight in 64, four
  // in 32.
  world.step({{sequence, 5}}, spread_eight);
  EXPECT_EQ(world.num_tiles(0), 1);
  EXPECT_EQ(world.num_tiles(1), 3);
  EXPECT_EQ(world.num_tiles(2), 2);
}

TEST(Tiles, one_is_enough_while_the_whole_context_fits) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(190);
  world.step({{sequence, 21}}, newest_eight);
  EXPECT_EQ(world.num_tiles(1), 1);
  world.step({{sequence, 1}}, newest_eight);
  EXPECT_EQ(world.num_tiles(1), 1);
  world.step({{sequence, 3}}, newest_eight);
  EXPECT_EQ(world.num_tiles(1), 2);
}

TEST(Tiles, each_shows_its_own_rows_in_every_layer_of_the_group) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(190);
  for (int i = 0; i < 3; ++i) {
    world.step({{sequence, 60}}, i % 2 == 0 ? spread_eight : newest_eight);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(world.most_tiles(), 30);
}

TEST(Tiles, may_hold_rows_of_several_sequences_and_end_within_one) {
  StoreWorld world(one_chunk_each());
  const int first = *world.admit(120);
  const int second = *world.admit(120);
  const int third = *world.admit(120);
  world.step({{first, 90}});
  world.step({{second, 90}});
  world.step({{third, 3}});
  world.step({{first, 1}, {second, 3}, {third, 2}}, spread_eight);
  // 27 required rows take two chunks, 42 slots: 8 + 3 * 8 = 32, then 4 and 5 rows visible to the
  // third sequence, which count once: 37.
  EXPECT_EQ(world.store().capacity_rows(1), 42);
  EXPECT_EQ(world.num_tiles(1), 1);
  world.step({{first, 2}, {second, 4}, {third, 9}}, spread_eight);
  // 16 + 24 fit, the second sequence's fourth row does not; it starts a tile that the third fills.
  EXPECT_EQ(world.num_tiles(1), 2);
}

TEST(Tiles, a_decode_step_of_many_sequences_is_one_tile) {
  StoreWorld world(one_chunk_each());
  std::vector<StepPart> parts;
  for (int i = 0; i < 6; ++i) {
    const int sequence = *world.admit(100);
    world.step({{sequence, 60}});
    parts.push_back({sequence, 1});
  }
  for (int i = 0; i < 5; ++i) {
    world.step(parts, spread_eight);
    for (int group = 0; group < 3; ++group) EXPECT_EQ(world.num_tiles(group), 1);
  }
}

// What a request is charged for must not depend on how little memory there was.
TEST(Tiles, a_selection_counts_once_however_many_tiles_and_layers_read_it) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(190);
  world.step({{sequence, 90}});
  const int64_t before = world.counters(1).resolve.selected;
  world.step({{sequence, 5}}, spread_eight);
  ASSERT_EQ(world.num_tiles(1), 3);
  EXPECT_EQ(world.counters(1).resolve.selected - before, 5 * 8);
  EXPECT_EQ(world.selected_of(0), 3 * 5 * 8);
}

}  // namespace
}  // namespace dhs
