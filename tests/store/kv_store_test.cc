// Appending, selecting and counting, with one tile and a quiet pool of chunks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "dhisparse/store.h"
#include "store_world.h"

namespace dhs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kNumGroups = 3;

// With bf16 rows of 64 bytes, groups of 1, 3 and 2 layers get 64, 21 and 32 slots per chunk; one
// small request requires one chunk of each.
WorldShape one_chunk_each() { return {.residency = {ResidencyMode::kFixed, 1}}; }

// Every row of the group selects `wanted` as far as it is visible, then itself.
StoreWorld::Choice select_fixed(std::vector<int32_t> wanted) {
  return [wanted](int, int, int32_t position) {
    std::vector<int32_t> chosen;
    for (int32_t candidate : wanted) {
      if (candidate < position) chosen.push_back(candidate);
    }
    chosen.push_back(position);
    return chosen;
  };
}

TEST(KvStore, what_was_appended_is_selected_without_a_fetch_while_it_is_resident) {
  StoreWorld world({});
  const int sequence = *world.admit(150);
  world.step({{sequence, 90}});
  for (int i = 0; i < 60; ++i) world.step({{sequence, 1}});
  for (int group = 0; group < kNumGroups; ++group) {
    EXPECT_EQ(world.counters(group).resolve.missed, 0);
    EXPECT_EQ(world.counters(group).fetched_bytes, 0);
    EXPECT_EQ(world.resident_rows(group), 150);
  }
}

TEST(KvStore, evicted_rows_come_back_exactly_and_then_stay) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(150);
  for (int i = 0; i < 10; ++i) world.step({{sequence, 12}});
  const auto old_rows = select_fixed({0, 1, 2, 3, 4, 5, 6});
  world.step({{sequence, 1}}, old_rows);
  for (int group = 0; group < kNumGroups; ++group) EXPECT_GT(world.missed(group), 0) << group;
  world.step({{sequence, 1}}, old_rows);
  for (int group = 0; group < kNumGroups; ++group) EXPECT_EQ(world.missed(group), 0) << group;
}

TEST(KvStore, rows_come_and_go_as_the_counters_say) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(150);
  for (int i = 0; i < 50; ++i) world.step({{sequence, 1 + i % 5}});
  for (int group = 0; group < kNumGroups; ++group) {
    const RowCacheCounters& counters = world.counters(group);
    // Every token got a slot when it was written, every miss when it was fetched.
    EXPECT_EQ(world.num_tokens(sequence) + counters.resolve.missed - counters.resolve.evicted,
              world.resident_rows(group));
    EXPECT_GT(counters.resolve.missed, 0);
    EXPECT_GT(counters.resolve.evicted, 0);
    EXPECT_EQ(counters.released, 0);
  }
  EXPECT_EQ(world.store().capacity_rows(0), 64);
  EXPECT_EQ(world.store().capacity_rows(1), 21);
  EXPECT_EQ(world.store().capacity_rows(2), 32);
}

TEST(KvStore, each_sequence_is_told_what_it_selected_and_what_it_missed_in_all_groups) {
  StoreWorld world(one_chunk_each());
  const int first = *world.admit(100);
  const int second = *world.admit(100);
  world.step({{first, 3}, {second, 5}});
  for (int i = 0; i < 8; ++i) world.step({{second, 11}});  // drives the first one's rows out
  const auto choice = [&](int, int sequence, int32_t position) {
    return sequence == first ? std::vector<int32_t>{0, 1, 2, position}
                             : std::vector<int32_t>{position - 1, position};
  };
  world.step({{first, 2}, {second, 1}}, choice);
  EXPECT_EQ(world.selected_of(0), 24);
  EXPECT_EQ(world.selected_of(1), 6);
  EXPECT_EQ(world.missed_of(0), world.missed(0) + world.missed(1) + world.missed(2));
  EXPECT_EQ(world.missed_of(1), 0);
  EXPECT_EQ(world.missed(1), 3) << "the smallest cache cannot have kept them";
}

TEST(KvStore, a_row_that_several_query_rows_want_is_fetched_once) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(150);
  for (int i = 0; i < 12; ++i) world.step({{sequence, 10}});
  world.step({{sequence, 5}}, select_fixed({3, 4}));
  EXPECT_EQ(world.missed(1), 2);
}

TEST(KvStore, a_rewritten_position_has_its_new_bytes_in_both_tiers_resident_or_not) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(150);
  world.step({{sequence, 20}});
  world.step({{.sequence = sequence, .num_new = 1, .rewind = 6}});
  for (int i = 0; i < 8; ++i) world.step({{sequence, 12}});
  // Far more than any cache holds: some of these are resident, some are not.
  world.step({{.sequence = sequence, .num_new = 0, .rewind = 90}});
  for (int i = 0; i < 10; ++i) world.step({{sequence, 1}});
}

TEST(KvStore, a_prompt_larger_than_the_cache_is_written_whole) {
  StoreWorld world(one_chunk_each());
  const int sequence = *world.admit(150);
  world.step({{sequence, 96}});
  EXPECT_EQ(world.resident_rows(1), 21);
  world.step({{sequence, 1}}, select_fixed({0, 20, 21, 40, 60, 80, 95}));
}

TEST(KvStore, a_step_of_no_rows_is_legal) {
  StoreWorld world({});
  world.step({});
  EXPECT_EQ(world.num_tiles(0), 0);
  const int sequence = *world.admit(10);
  world.step({{sequence, 3}});
  world.step({});
  EXPECT_EQ(world.selected_of(0), 0);
  world.step({{sequence, 3}});
}

TEST(KvStore, equal_positions_of_two_sequences_are_different_rows) {
  StoreWorld world({});
  const int first = *world.admit(20);
  const int second = *world.admit(20);
  world.step({{first, 10}, {second, 10}}, select_fixed({0, 1, 2, 3}));
  world.step({{second, 1}, {first, 1}}, select_fixed({0, 1, 2, 3}));
  EXPECT_EQ(world.resident_rows(0), 22);
}

TEST(KvStoreDeathTest, more_query_rows_than_the_layout_has_stop_the_process) {
  StoreWorld world({.max_query_rows = 8});
  const int sequence = *world.admit(20);
  EXPECT_DEATH(world.step({{sequence, 9}}), "9 query rows, limit 8");
}

TEST(KvStoreDeathTest, a_layer_of_a_group_that_is_not_selected_stops_the_process) {
  StoreWorld world({});
  const int sequence = *world.admit(20);
  world.step({{sequence, 4}});
  EXPECT_DEATH(world.store().selected(1, 0), "layer 1 reads group 1, selected is 2");
  EXPECT_DEATH(world.store().selected(-1, 0), "layer -1 is in no index group");
}

// ---- Reservation --------------------------------------------------------------------------------

KvGeometry tiny_geometry(const StoreLayout& layout) {
  const std::vector<int32_t> layers_per_group = {1, 2};
  return make_geometry(layers_per_group, layout.row.row_bytes(), layout.index_key.page_bytes(), 4);
}

constexpr StoreLayout kTinyLayout = {.row = {RowFormat::kBf16, 16, 8},
                                     .index_key = {RowFormat::kBf16, 8, kHostBlockTokens},
                                     .max_query_rows = 8,
                                     .max_sequences = 2};

TEST(CreateKvStore, reserves_both_tiers_whole_and_nothing_later) {
  WatchedDevice device;
  const KvGeometry geometry = tiny_geometry(kTinyLayout);
  const auto store = KvStore::create(device, geometry, {5, 7, 8192}, kTinyLayout);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_EQ(device.host_reservations().size(), 3u) << "the arena, the reports, the uploads";
  EXPECT_EQ(device.host_reservations().front().bytes, 5 * geometry.host_block_bytes);
  EXPECT_NE(device.device_memory(7 * 8192), nullptr);
  EXPECT_EQ((*store)->geometry().host_block_bytes, geometry.host_block_bytes);
  EXPECT_EQ((*store)->layout().max_query_rows, 8);
  EXPECT_EQ((*store)->capacity_rows(0), 0);
  EXPECT_EQ((*store)->check_invariants(), "");
}

TEST(CreateKvStore, passes_on_the_refusal_of_any_reservation) {
  const KvGeometry geometry = tiny_geometry(kTinyLayout);
  WatchedDevice willing;
  ASSERT_TRUE(KvStore::create(willing, geometry, {5, 7, 8192}, kTinyLayout).ok());
  for (int index = 0; index < willing.num_reservations(); ++index) {
    WatchedDevice device;
    device.refuse(index);
    const absl::Status status =
        KvStore::create(device, geometry, {5, 7, 8192}, kTinyLayout).status();
    EXPECT_EQ(status, absl::ResourceExhaustedError(absl::StrCat("refused ", index)));
  }
}

TEST(CreateKvStore, a_pool_that_the_machine_does_not_have_is_refused_with_both_numbers) {
  WatchedDevice device;
  const KvGeometry geometry = tiny_geometry(kTinyLayout);
  const absl::Status status =
      KvStore::create(device, geometry, {INT32_MAX, 7, 8192}, kTinyLayout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(INT32_MAX * geometry.host_block_bytes, " bytes asked for")));
}

}  // namespace
}  // namespace dhs
