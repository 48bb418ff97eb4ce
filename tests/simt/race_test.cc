// Races, found by the checked build. examples_test.cc is the other half: no false alarms.
#include <vector>

#include "simt/kernels/faulty.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

class RaceTest : public LaunchTest {
 protected:
  std::vector<float> floats_ = std::vector<float>(64);
  std::vector<int> x_ = std::vector<int>(64);
  std::vector<int> y_ = std::vector<int>(64);
  const ScopedBuffer floats_buffer_{floats_, "floats"};
  const ScopedBuffer x_buffer_{x_, "x"};
  const ScopedBuffer y_buffer_{y_, "y"};
};

TEST_F(RaceTest, a_missing_syncthreads_is_found) {
  EXPECT_TRUE(failed_with(launch(faulty::missing_syncthreads, 1, 64, 0, nullptr, floats_.data()),
                          "shared race"));
}

TEST_F(RaceTest, a_missing_syncwarp_is_found) {
  EXPECT_TRUE(failed_with(launch(faulty::missing_syncwarp, 1, 32, 0, nullptr, x_.data(), y_.data()),
                          "shared race"));
}

TEST_F(RaceTest, an_overwrite_of_what_others_read_is_found) {
  const auto error = launch(faulty::overwritten_while_read, 1, 64, 0, nullptr, floats_.data());
  EXPECT_TRUE(failed_with(error, "shared race"));
}

TEST_F(RaceTest, a_plain_write_beside_an_atomic_is_found) {
  const auto error = launch(faulty::plain_write_beside_atomic, 1, 64, 0, nullptr, x_.data());
  EXPECT_TRUE(failed_with(error,
                          "shared race: atomic of 4 bytes is not ordered after the write "
                          "by thread 0; block (0,0,0) thread 1 at tests/simt/kernels/faulty.cu:"));
}

TEST_F(RaceTest, shared_races_can_be_ignored) {
  options().shared_races = false;
  EXPECT_TRUE(succeeded(launch(faulty::missing_syncthreads, 1, 64, 0, nullptr, floats_.data())));
}

TEST_F(RaceTest, blocks_that_share_output_are_found) {
  options().global_races = true;
  const auto error = launch(faulty::blocks_share_output, 2, 64, 0, nullptr, floats_.data());
  EXPECT_TRUE(failed_with(error,
                          "global race: write of 4 bytes is not ordered after the write "
                          "by thread 0 of another block; block (1,0,0) thread 0"));
}

TEST_F(RaceTest, threads_that_share_output_are_found) {
  options().global_races = true;
  const auto error = launch(faulty::threads_share_output, 1, 64, 0, nullptr, floats_.data());
  EXPECT_TRUE(failed_with(error, "global race: "));
}

TEST_F(RaceTest, global_races_are_ignored_by_default) {
  EXPECT_TRUE(succeeded(launch(faulty::blocks_share_output, 2, 64, 0, nullptr, floats_.data())));
}

TEST_F(RaceTest, launches_one_after_another_are_ordered) {
  options().global_races = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(succeeded(launch(faulty::blocks_share_output, 1, 64, 0, nullptr, floats_.data())));
  }
}

}  // namespace
}  // namespace simt
