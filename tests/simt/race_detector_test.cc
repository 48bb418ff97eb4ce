// The race detector's rules, one by one.
#include "simt/emu/race_detector.h"

#include <gtest/gtest.h>

namespace simt {
namespace {

// Two launches: epochs 1-9 and 10 on. In the second, block A has epochs 10-19 and block B 20 on.
AccessTime at(uint16_t thread, uint32_t epoch, uint32_t warp_epoch = 1) {
  AccessTime time;
  time.launch_begin = epoch < 10 ? 1 : 10;
  time.block_begin = epoch < 10 ? 1 : epoch / 10 * 10;
  time.epoch = epoch;
  time.synced_epoch = epoch;
  time.warp_epoch = warp_epoch;
  time.thread = thread;
  return time;
}

class RaceDetectorTest : public testing::Test {
 protected:
  bool races(AccessKind kind, const AccessTime& now, Space space = Space::shared) {
    return record_access(cell_, now, kind, space).has_value();
  }
  bool read(const AccessTime& now) { return races(AccessKind::read, now); }
  bool write(const AccessTime& now) { return races(AccessKind::write, now); }
  bool atomic(const AccessTime& now) { return races(AccessKind::atomic, now); }

  ShadowCell cell_;
};

TEST_F(RaceDetectorTest, one_thread_never_races_with_itself) {
  EXPECT_FALSE(write(at(1, 10)));
  EXPECT_FALSE(read(at(1, 10)));
  EXPECT_FALSE(write(at(1, 10)));
}

TEST_F(RaceDetectorTest, a_block_barrier_orders) {
  EXPECT_FALSE(write(at(1, 10)));
  EXPECT_FALSE(read(at(200, 11)));
}

TEST_F(RaceDetectorTest, nothing_orders_two_threads) {
  EXPECT_FALSE(write(at(1, 10)));
  EXPECT_TRUE(read(at(2, 10)));
}

TEST_F(RaceDetectorTest, a_warp_sync_orders_its_warp) {
  EXPECT_FALSE(write(at(1, 10, 1)));
  EXPECT_FALSE(read(at(2, 10, 2)));
}

TEST_F(RaceDetectorTest, a_warp_sync_does_not_order_another_warp) {
  EXPECT_FALSE(write(at(1, 10, 1)));
  EXPECT_TRUE(read(at(32, 10, 2)));
}

TEST_F(RaceDetectorTest, reads_by_several_lanes_are_all_remembered) {
  EXPECT_FALSE(read(at(1, 10)));
  EXPECT_FALSE(read(at(2, 10)));
  EXPECT_TRUE(write(at(2, 10)));
}

TEST_F(RaceDetectorTest, reads_by_several_lanes_are_ordered_by_a_warp_sync) {
  EXPECT_FALSE(read(at(1, 10, 1)));
  EXPECT_FALSE(read(at(2, 10, 1)));
  EXPECT_FALSE(write(at(3, 10, 2)));
}

TEST_F(RaceDetectorTest, reads_by_several_warps_need_a_block_barrier) {
  EXPECT_FALSE(read(at(1, 10, 1)));
  EXPECT_FALSE(read(at(33, 10, 1)));
  EXPECT_TRUE(write(at(33, 10, 2)));
}

TEST_F(RaceDetectorTest, atomics_do_not_race_with_each_other) {
  EXPECT_FALSE(atomic(at(1, 10)));
  EXPECT_FALSE(atomic(at(40, 10)));
  EXPECT_FALSE(read(at(40, 11)));
}

TEST_F(RaceDetectorTest, atomics_of_several_threads_race_with_a_plain_read) {
  EXPECT_FALSE(atomic(at(1, 10)));
  EXPECT_FALSE(atomic(at(40, 10)));
  EXPECT_TRUE(read(at(40, 10)));
}

TEST_F(RaceDetectorTest, an_own_atomic_does_not_hide_an_own_plain_write) {
  EXPECT_FALSE(write(at(1, 10)));
  EXPECT_FALSE(atomic(at(1, 10)));
  EXPECT_TRUE(atomic(at(2, 10)));
}

TEST_F(RaceDetectorTest, shared_memory_of_an_earlier_block_is_forgotten) {
  EXPECT_FALSE(write(at(1, 15)));
  EXPECT_FALSE(write(at(2, 20)));
}

TEST_F(RaceDetectorTest, blocks_are_not_ordered_in_global_memory) {
  EXPECT_FALSE(races(AccessKind::write, at(1, 15), Space::global));
  EXPECT_TRUE(races(AccessKind::read, at(1, 25), Space::global));
}

TEST_F(RaceDetectorTest, reads_by_several_blocks_are_all_remembered) {
  EXPECT_FALSE(races(AccessKind::read, at(1, 15), Space::global));
  EXPECT_FALSE(races(AccessKind::read, at(1, 20), Space::global));
  EXPECT_TRUE(races(AccessKind::write, at(1, 21), Space::global));
}

TEST_F(RaceDetectorTest, a_thread_that_has_not_waited_is_not_ordered) {
  // Epoch 12 began when an mbarrier completed; thread 2 has not waited for it, thread 3 has.
  AccessTime unaware = at(2, 12);
  unaware.synced_epoch = 11;
  EXPECT_FALSE(write(at(1, 11)));
  EXPECT_FALSE(read(at(3, 12)));
  EXPECT_TRUE(read(unaware));
}

TEST_F(RaceDetectorTest, only_writes_of_this_block_count_as_written) {
  EXPECT_FALSE(write(at(1, 15)));
  EXPECT_FALSE(is_written(cell_, at(1, 20)));
  EXPECT_FALSE(atomic(at(1, 21)));
  EXPECT_TRUE(is_written(cell_, at(1, 21)));
}

TEST_F(RaceDetectorTest, launches_are_ordered_in_global_memory) {
  EXPECT_FALSE(races(AccessKind::write, at(1, 5), Space::global));
  EXPECT_FALSE(races(AccessKind::write, at(2, 10), Space::global));
}

}  // namespace
}  // namespace simt
