// Rows that were evicted lately come back into free slots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/resolve/resolve.h"
#include "kernels/row_cache_fixture.h"
#include "kernels/row_cache_traffic.h"

namespace dhs {
namespace {

using test::expect_equal_states;
using test::Refilled;
using test::difference;
using test::RowCacheImage;
using test::Selection;
using test::TestedRowCache;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kNumBlocks = 16;
constexpr int64_t kNumHostRows = kNumBlocks * test::kBlockTokens;

// One query row of a sequence that owns all host blocks: positions are host rows.
Selection rows_from(int32_t first, int count) {
  Selection selection = {{std::vector<int32_t>(count)}, {0}, {std::vector<int32_t>(kNumBlocks)}};
  std::iota(selection.rows[0].begin(), selection.rows[0].end(), first);
  std::iota(selection.block_table[0].begin(), selection.block_table[0].end(), 0);
  return selection;
}

// Eight slots hold rows 0..7 of pass 1, then rows 100.. of pass 2 drive `num_evicted` of them out.
TestedRowCache cache_after_evictions(int num_evicted, int32_t ring_size = 16) {
  TestedRowCache cache({kNumHostRows, 8, 3, ring_size});
  cache.grow();
  cache.resolve(rows_from(0, 8));
  cache.resolve(rows_from(100, num_evicted));
  return cache;
}

TEST(Refill, takes_the_rows_evicted_last_into_free_slots_with_their_old_stamps) {
  TestedRowCache cache = cache_after_evictions(4);
  const std::vector<int64_t> evicted = cache.image().evicted_rows;
  cache.grow();
  const Refilled out = cache.refill(3);
  EXPECT_THAT(out.rows, ElementsAre(evicted[3], evicted[2], evicted[1]));
  EXPECT_THAT(out.slots, ElementsAre(8, 9, 10));
  EXPECT_EQ(out.num_refilled, 3);
  RowCacheImage image = cache.image();
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(out.rows[i], 8);
    EXPECT_EQ(image.slot_of[out.rows[i]], out.slots[i]);
    EXPECT_EQ(image.last_used[out.slots[i]], 1u);
  }
  EXPECT_EQ(image.slot_of[evicted[0]], kAbsent);
  EXPECT_EQ(image.head.num_free, 5);
  EXPECT_EQ(image.check(), nullptr);
}

TEST(Refill, evicts_nothing_where_no_slot_is_free) {
  TestedRowCache cache = cache_after_evictions(4);
  RowCacheImage before = cache.image();
  EXPECT_THAT(cache.refill(4).rows, IsEmpty());
  EXPECT_EQ(difference(cache.image(), before), "");
}

TEST(Refill, stops_when_the_free_slots_are_used_up) {
  TestedRowCache cache = cache_after_evictions(8);
  cache.resolve(rows_from(200, 8));
  cache.grow();
  EXPECT_EQ(cache.refill(100).rows.size(), 8u);
  RowCacheImage image = cache.image();
  EXPECT_EQ(image.head.num_free, 0);
  for (int row = 100; row < 108; ++row) EXPECT_NE(image.slot_of[row], kAbsent) << row;
  EXPECT_EQ(image.check(), nullptr);
}

TEST(Refill, takes_a_row_once_however_often_it_was_evicted_and_none_that_is_resident) {
  TestedRowCache cache = cache_after_evictions(8);
  cache.resolve(rows_from(0, 8));    // evicts 100..107
  cache.resolve(rows_from(100, 8));  // evicts 0..7 again: the ring names them twice
  cache.grow();
  Refilled out = cache.refill(16);
  std::sort(out.rows.begin(), out.rows.end());
  EXPECT_THAT(out.rows, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  RowCacheImage image = cache.image();
  for (int row = 0; row < 8; ++row) EXPECT_EQ(image.last_used[image.slot_of[row]], 3u) << row;
}

TEST(Refill, takes_no_row_of_a_block_that_was_invalidated_since) {
  TestedRowCache cache = cache_after_evictions(8);  // all of block 0; 100..107 are of block 1
  cache.resolve(rows_from(200, 8));
  cache.invalidate({0});
  cache.grow(2);  // room for all that were evicted
  Refilled out = cache.refill(16);
  std::sort(out.rows.begin(), out.rows.end());
  EXPECT_THAT(out.rows, ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
}

TEST(Refill, takes_the_rows_of_a_blocks_next_owner_again) {
  TestedRowCache cache = cache_after_evictions(8);
  cache.invalidate({0});
  cache.resolve(rows_from(20, 8));   // of block 0, evicts 100..107
  cache.resolve(rows_from(200, 8));  // evicts 20..27
  cache.grow();
  Refilled out = cache.refill(8);
  std::sort(out.rows.begin(), out.rows.end());
  EXPECT_THAT(out.rows, ElementsAre(20, 21, 22, 23, 24, 25, 26, 27));
}

TEST(Refill, brings_back_what_a_release_dropped) {
  TestedRowCache cache({kNumHostRows, 8, 2, 16});
  cache.grow(2);
  cache.resolve(rows_from(0, 16));  // the newest segment's slots are used first: rows 0..7
  cache.begin_step();
  EXPECT_EQ(cache.release().num_dropped, 8);
  cache.grow();
  const Refilled out = cache.refill(16);
  EXPECT_THAT(out.rows, ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
  EXPECT_EQ(cache.image().check(), nullptr);
}

TEST(Refill, leaves_rows_that_go_before_those_that_were_used_since) {
  TestedRowCache cache = cache_after_evictions(8);
  cache.grow();
  cache.refill(8);
  cache.resolve(rows_from(200, 8));  // all slots are candidates of one class
  RowCacheImage image = cache.image();
  for (int row = 0; row < 8; ++row) EXPECT_EQ(image.slot_of[row], kAbsent) << row;
  for (int row = 100; row < 108; ++row) EXPECT_NE(image.slot_of[row], kAbsent) << row;
}

TEST(Refill, knows_no_more_rows_than_the_ring_holds) {
  TestedRowCache cache = cache_after_evictions(8, 4);
  cache.grow();
  EXPECT_EQ(cache.refill(8).rows.size(), 4u);
}

TEST(Refill, finds_nothing_without_a_ring) {
  TestedRowCache cache = cache_after_evictions(8, 0);
  cache.grow();
  EXPECT_THAT(cache.refill(8).rows, IsEmpty());
  EXPECT_EQ(cache.image().check(), nullptr);
}

TEST(Refill, finds_rows_again_when_ticks_wrapped_around) {
  TestedRowCache cache({kNumHostRows, 8, 2, 16});
  cache.grow();
  cache.set_tick(UINT32_MAX - 4);
  cache.resolve(rows_from(0, 8));
  cache.resolve(rows_from(100, 8));  // the last tick
  ASSERT_EQ(cache.head().tick, 0u);
  cache.grow();
  EXPECT_EQ(cache.refill(8).rows.size(), 8u);
  RowCacheImage image = cache.image();
  for (int row = 0; row < 8; ++row) EXPECT_EQ(image.last_used[image.slot_of[row]], 0u);
  EXPECT_EQ(image.check(), nullptr);
}

// Rings smaller than one pass's victims, and larger than one look of the kernel.
TEST(Refill, leaves_equal_states_over_random_passes) {
  for (int32_t ring_size : {1, 8, 64, 2048}) {
    expect_equal_states({.shape = {2048, 48, 6, ring_size},
                         .num_query_rows = 4,
                         .top_k = 24,
                         .num_steps = test::kOnCuda ? 60 : 1500},
                        static_cast<uint32_t>(ring_size));
  }
}

TEST(Refill, leaves_equal_states_over_passes_of_several_launches) {
  expect_equal_states({.shape = {8192, 1500, 3, 4096},
                       .num_query_rows = 5,
                       .top_k = 600,
                       .blocks_each = 60,
                       .num_steps = test::kOnCuda ? 40 : 400},
                      9);
}

}  // namespace
}  // namespace dhs
