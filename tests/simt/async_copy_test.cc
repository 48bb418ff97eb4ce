// cp.async: the copy is deferred to the wait, so a missing wait shows in every build.
#include <vector>

#include "simt/emu/garbage.h"
#include "simt/kernels/examples.cuh"
#include "simt/kernels/faulty.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

class AsyncCopyTest : public LaunchTest {
 protected:
  static constexpr int kThreads = 64;
  static constexpr int kTiles = 5;
  static constexpr size_t kStageBytes = kThreads * sizeof(uint4);

  AsyncCopyTest() {
    for (unsigned i = 0; i < x_.size(); ++i) {
      x_[i] = make_uint4(i, i + 1, i + 2, i + 3);
    }
  }

  std::vector<uint4> x_ = std::vector<uint4>(kThreads * kTiles);
  std::vector<uint4> y_ = std::vector<uint4>(kThreads * kTiles);
  const ScopedBuffer x_buffer_{x_, "x"};
  const ScopedBuffer y_buffer_{y_, "y"};
};

TEST_F(AsyncCopyTest, a_double_buffered_pipeline_copies_every_tile) {
  for (uint64_t seed : {0, 7}) {
    options().seed = seed;
    ASSERT_TRUE(succeeded(launch(examples::staged_increment, 1, kThreads, 2 * kStageBytes, nullptr,
                                 x_.data(), y_.data(), kTiles)));
    for (unsigned i = 0; i < y_.size(); ++i) {
      ASSERT_EQ(y_[i].x, x_[i].x + 1) << i;
      ASSERT_EQ(y_[i].w, x_[i].w + 1) << i;
    }
  }
}

TEST_F(AsyncCopyTest, a_missing_wait_reads_garbage) {
  ASSERT_TRUE(succeeded(
      launch(faulty::missing_async_wait, 1, kThreads, kStageBytes, nullptr, x_.data(), y_.data())));
  for (int i = 0; i < kThreads; ++i) {
    ASSERT_EQ(y_[i].x, kGarbageWord) << i;
  }
}

TEST_F(AsyncCopyTest, a_missing_barrier_after_the_wait_is_a_race) {
  const auto error = launch(faulty::missing_barrier_after_async_wait, 1, kThreads, kStageBytes,
                            nullptr, x_.data(), y_.data());
  if (accesses_are_checked()) {
    EXPECT_TRUE(failed_with(error, "shared race"));
  }
  // Thread 0 runs first: its mirror image has not waited yet.
  EXPECT_EQ(y_[0].x, kGarbageWord);
}

TEST_F(AsyncCopyTest, a_copy_over_data_still_in_use_is_a_race) {
  const auto error = launch(faulty::async_copy_over_unread_data, 1, kThreads, kStageBytes, nullptr,
                            x_.data(), y_.data());
  if (accesses_are_checked()) {
    EXPECT_TRUE(failed_with(error, "shared race: "));
  }
}

}  // namespace
}  // namespace simt
