// Accesses that the thread must not make. Found by the checked build, before they do harm.
#include <vector>

#include "simt/kernels/faulty.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

class MemoryFaultsTest : public LaunchTest {
 protected:
  static constexpr int kBlocks = 4;
  static constexpr int kThreads = 64;

  MemoryFaultsTest() { options().workers = 1; }

  alignas(16) float x_[kBlocks * kThreads + 16] = {};
  alignas(16) float y_[kBlocks * kThreads] = {};
  int counters_[kBlocks * kThreads + 16] = {};
  // The arrays go on after what is registered: a fault that is not stopped would show in x_.
  const ScopedBuffer x_buffer_{x_, kBlocks* kThreads * sizeof(float), "x"};
  const ScopedBuffer y_buffer_{y_, sizeof y_, "y"};
  const ScopedBuffer counters_buffer_{counters_, kBlocks* kThreads * sizeof(int), "counters"};
};

TEST_F(MemoryFaultsTest, accesses_are_checked_in_this_build) {
  EXPECT_TRUE(accesses_are_checked());
}

TEST_F(MemoryFaultsTest, a_write_past_the_end_is_stopped) {
  const auto error = launch(faulty::write_past_end, kBlocks, kThreads, 0, nullptr, x_);
  EXPECT_TRUE(failed_with(error,
                          "global out-of-bounds write of 4 bytes, 0 bytes past the end of "
                          "'x'; block (3,0,0) thread 63"));
  EXPECT_EQ(last_report().errors.size(), 1u);
  EXPECT_EQ(x_[kBlocks * kThreads], 0) << "the write was made";
}

TEST_F(MemoryFaultsTest, a_report_names_the_line) {
  const auto error = launch(faulty::write_past_end, kBlocks, kThreads, 0, nullptr, x_);
  EXPECT_TRUE(failed_with(error, "simt/kernels/faulty.cu:"));
}

TEST_F(MemoryFaultsTest, a_read_past_the_end_is_stopped) {
  const auto error = launch(faulty::read_past_end, kBlocks, kThreads, 0, nullptr, x_, y_);
  EXPECT_TRUE(
      failed_with(error, "global out-of-bounds read of 4 bytes, 0 bytes past the end of 'x'"));
}

TEST_F(MemoryFaultsTest, an_atomic_past_the_end_is_stopped) {
  const auto error = launch(faulty::atomic_past_end, kBlocks, kThreads, 0, nullptr, counters_);
  EXPECT_TRUE(failed_with(error,
                          "global out-of-bounds atomic of 4 bytes, 0 bytes past the end of "
                          "'counters'; block (3,0,0) thread 63 at tests/simt/kernels/faulty.cu:"));
  EXPECT_EQ(counters_[kBlocks * kThreads], 0) << "the atomic was made";
}

TEST_F(MemoryFaultsTest, a_null_pointer_is_stopped) {
  float* nothing = nullptr;
  EXPECT_TRUE(failed_with(launch(faulty::write_past_end, 1, kThreads, 0, nullptr, nothing),
                          "global out-of-bounds write of 4 bytes"));
}

TEST_F(MemoryFaultsTest, a_misaligned_vector_is_stopped) {
  EXPECT_TRUE(failed_with(launch(faulty::misaligned_vector, 1, kThreads, 0, nullptr, x_, y_),
                          "misaligned read of 16 bytes"));
}

TEST_F(MemoryFaultsTest, another_threads_stack_is_out_of_bounds) {
  EXPECT_TRUE(
      failed_with(launch(faulty::read_other_threads_stack, 1, kThreads, 0, nullptr, counters_),
                  "global out-of-bounds read of 4 bytes"));
}

TEST_F(MemoryFaultsTest, a_dynamic_shared_overrun_is_stopped) {
  const auto error =
      launch(faulty::dynamic_shared_overrun, 1, kThreads, kThreads * sizeof(float), nullptr, x_);
  EXPECT_TRUE(failed_with(error,
                          "shared out-of-bounds read of 4 bytes at offset 256 of 256; "
                          "block (0,0,0) thread 63 at "));
}

TEST_F(MemoryFaultsTest, dynamic_shared_memory_that_is_large_enough_is_silent) {
  options().uninitialized_shared = false;
  EXPECT_TRUE(succeeded(launch(faulty::dynamic_shared_overrun, 1, kThreads,
                               (kThreads + 1) * sizeof(float), nullptr, x_)));
}

}  // namespace
}  // namespace simt
