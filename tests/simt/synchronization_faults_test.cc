// Barriers and collectives used wrongly. Found in every build.
#include <vector>

#include "simt/kernels/faulty.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

class SynchronizationFaultsTest : public LaunchTest {
 protected:
  std::vector<float> floats_ = std::vector<float>(64);
  std::vector<int> ints_ = std::vector<int>(64);
  const ScopedBuffer floats_buffer_{floats_, "floats"};
  const ScopedBuffer ints_buffer_{ints_, "ints"};
};

TEST_F(SynchronizationFaultsTest, a_divergent_barrier_is_found) {
  EXPECT_TRUE(
      failed_with(launch(faulty::divergent_barrier, 1, 64, 0, nullptr, floats_.data()),
                  "divergent barrier: block (0,0,0) thread 17 at tests/simt/kernels/faulty.cu:"));
}

TEST_F(SynchronizationFaultsTest, a_divergent_barrier_is_found_under_a_random_schedule) {
  options().seed = 3;
  EXPECT_TRUE(failed_with(launch(faulty::divergent_barrier, 1, 64, 0, nullptr, floats_.data()),
                          "divergent barrier"));
}

TEST_F(SynchronizationFaultsTest, an_exited_thread_is_missed_at_a_barrier) {
  const auto error = launch(faulty::exit_before_barrier, 1, 64, 0, nullptr, floats_.data());
  EXPECT_TRUE(failed_with(error,
                          "stuck: block (0,0,0), 1 of 64 threads exited; "
                          "thread 0 at barrier tests/simt/kernels/faulty.cu:"));
}

TEST_F(SynchronizationFaultsTest, an_exited_thread_is_forgiven_on_request) {
  options().strict_exit = false;
  EXPECT_TRUE(succeeded(launch(faulty::exit_before_barrier, 1, 64, 0, nullptr, floats_.data())));
  EXPECT_EQ(floats_[39], 1);
  EXPECT_EQ(floats_[40], 0);
}

TEST_F(SynchronizationFaultsTest, a_calling_lane_outside_the_mask_is_found) {
  EXPECT_TRUE(failed_with(launch(faulty::call_outside_mask, 1, 32, 0, nullptr, ints_.data()),
                          "calling lane not in mask: block (0,0,0) thread 16 at"));
}

TEST_F(SynchronizationFaultsTest, an_exited_lane_in_the_mask_is_found) {
  EXPECT_TRUE(failed_with(launch(faulty::exited_lane_in_mask, 1, 32, 0, nullptr, ints_.data()),
                          "mask names an exited lane: block (0,0,0) thread 1 at"));
}

TEST_F(SynchronizationFaultsTest, a_lane_that_never_arrives_is_found) {
  EXPECT_TRUE(failed_with(launch(faulty::missing_lane_in_mask, 1, 32, 0, nullptr, ints_.data()),
                          "thread 0 at warp collective tests/simt/kernels/faulty.cu:"));
}

TEST_F(SynchronizationFaultsTest, disagreeing_masks_are_found) {
  EXPECT_TRUE(failed_with(launch(faulty::disagreeing_masks, 1, 32, 0, nullptr, ints_.data()),
                          "lanes disagree on mask or on the collective: block (0,0,0) thread 16"));
}

TEST_F(SynchronizationFaultsTest, disagreeing_collectives_are_found) {
  EXPECT_TRUE(failed_with(launch(faulty::disagreeing_collectives, 1, 32, 0, nullptr, ints_.data()),
                          "lanes disagree on mask or on the collective: block (0,0,0) thread 16"));
}

TEST_F(SynchronizationFaultsTest, an_endless_spin_is_found) {
  options().max_yields = 10'000;
  EXPECT_TRUE(
      failed_with(launch(faulty::spin_forever, 1, 64, 0, nullptr, ints_.data()), "livelock"));
}

TEST_F(SynchronizationFaultsTest, a_trap_ends_the_block) {
  EXPECT_TRUE(failed_with(launch(faulty::trapped, 1, 64, 0, nullptr, ints_.data()),
                          "trap: block (0,0,0) thread 0 at tests/simt/kernels/faulty.cu:"));
  EXPECT_EQ(last_report().errors.size(), 1u);
}

TEST_F(SynchronizationFaultsTest, the_next_launch_is_unaffected) {
  EXPECT_FALSE(succeeded(launch(faulty::divergent_barrier, 4, 64, 0, nullptr, floats_.data())));
  options().strict_exit = false;
  EXPECT_TRUE(succeeded(launch(faulty::exit_before_barrier, 1, 64, 0, nullptr, floats_.data())));
}

}  // namespace
}  // namespace simt
