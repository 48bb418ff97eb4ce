// mbarriers and bulk copies: the copies are deferred to the wait that observes their phase.
#include <vector>

#include "simt/emu/garbage.h"
#include "simt/kernels/bulk_copies.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

constexpr unsigned kThreads = 64;
constexpr unsigned kTiles = 7;

class BulkCopyTest : public LaunchTest {
 protected:
  BulkCopyTest() {
    for (unsigned i = 0; i < x_.size(); ++i) x_[i] = make_uint4(i, i + 1, i + 2, i + 3);
  }
  template <class Kernel>
  cudaError_t run(Kernel kernel) {
    return launch(kernel, 1, kThreads, kThreads * sizeof(uint4), nullptr, x_.data(), y_.data());
  }

  std::vector<uint4> x_ = std::vector<uint4>(kThreads * kTiles);
  std::vector<uint4> y_ = std::vector<uint4>(kThreads * kTiles);
  const ScopedBuffer x_buffer_{x_, "x"};
  const ScopedBuffer y_buffer_{y_, "y"};
};

TEST_F(BulkCopyTest, a_producer_warp_feeds_the_others_through_two_stages) {
  for (uint64_t seed : {0, 3, 8}) {
    options().seed = seed;
    options().global_races = true;
    ASSERT_TRUE(
        succeeded(launch(bulk::staged_increment, 1, kThreads + 32, 2 * kThreads * sizeof(uint4),
                         nullptr, x_.data(), y_.data(), int(kTiles))));
    for (unsigned i = 0; i < y_.size(); ++i) {
      ASSERT_EQ(y_[i].x, x_[i].x + 1) << i;
      ASSERT_EQ(y_[i].w, x_[i].w + 1) << i;
    }
  }
}

TEST_F(BulkCopyTest, one_lane_can_wait_for_its_warp) {
  for (uint64_t seed : {0, 5}) {
    options().seed = seed;
    ASSERT_TRUE(succeeded(run(bulk::copy_once)));
    for (unsigned i = 0; i < kThreads; ++i) ASSERT_EQ(y_[i].x, x_[kThreads - 1 - i].x) << i;
  }
}

TEST_F(BulkCopyTest, a_missing_wait_reads_garbage) {
  run(bulk::missing_wait);
  EXPECT_EQ(y_[0].x, kGarbageWord);
  EXPECT_EQ(y_[kThreads - 1].x, kGarbageWord);
}

TEST_F(BulkCopyTest, a_copy_over_data_that_others_still_read_is_a_race) {
  const cudaError_t error = run(bulk::missing_empty_wait);
  if (accesses_are_checked()) {
    EXPECT_TRUE(failed_with(error, "shared race: "));
  }
}

TEST_F(BulkCopyTest, bytes_that_were_not_announced_keep_the_phase_open) {
  options().max_yields = 10'000;
  EXPECT_TRUE(failed_with(run(bulk::too_few_bytes_announced), "livelock"));
}

TEST_F(BulkCopyTest, one_arrival_too_many_is_found) {
  EXPECT_TRUE(failed_with(run(bulk::one_arrival_too_many), "more arrivals than the mbarrier"));
}

TEST_F(BulkCopyTest, a_barrier_must_be_initialised) {
  EXPECT_TRUE(failed_with(
      launch(bulk::uninitialized_barrier, 1, 32, 0, nullptr, y_.data()),
      accesses_are_checked() ? "uninitialized shared atomic" : "mbarrier is not initialised"));
}

TEST_F(BulkCopyTest, a_missing_barrier_after_the_initialisation_is_a_race) {
  const cudaError_t error = run(bulk::missing_barrier_after_init);
  if (accesses_are_checked()) {
    EXPECT_TRUE(failed_with(error, "atomic of 8 bytes is not ordered after the write"));
  }
}

TEST_F(BulkCopyTest, a_size_that_is_no_multiple_of_16_is_found) {
  EXPECT_TRUE(failed_with(run(bulk::misaligned_copy), "misaligned bulk copy of 8 bytes"));
}

}  // namespace
}  // namespace simt
