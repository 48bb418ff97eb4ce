// What AddressSanitizer and UndefinedBehaviorSanitizer find in kernels. They end the process.
#include <vector>

#include "simt/kernels/faulty.cuh"
#include "simt/launch_fixture.h"

namespace simt {
namespace {

class SanitizerTest : public LaunchTest {
 protected:
  void SetUp() override {
    LaunchTest::SetUp();
    options().workers = 1;
  }

  std::vector<float> x_ = std::vector<float>(64);
  std::vector<int> ints_ = std::vector<int>(64, 1);
};

using SanitizerDeathTest = SanitizerTest;

TEST_F(SanitizerDeathTest, a_heap_overrun_ends_the_process) {
  EXPECT_DEATH(launch(faulty::write_past_end, 1, 64, 0, nullptr, x_.data()),
               "heap-buffer-overflow(.|\n)*faulty.cu");
}

TEST_F(SanitizerDeathTest, a_dynamic_shared_overrun_ends_the_process) {
  EXPECT_DEATH(
      launch(faulty::dynamic_shared_overrun, 1, 64, 64 * sizeof(float), nullptr, x_.data()),
      "use-after-poison(.|\n)*faulty.cu");
}

TEST_F(SanitizerDeathTest, a_static_shared_overrun_ends_the_process) {
  EXPECT_DEATH(launch(faulty::static_shared_overrun, 1, 64, 0, nullptr, x_.data()),
               "faulty.cu.*index 64 out of bounds");
}

TEST_F(SanitizerDeathTest, a_signed_overflow_ends_the_process) {
  EXPECT_DEATH(launch(faulty::signed_overflow, 1, 64, 0, nullptr, ints_.data()),
               "faulty.cu.*signed integer overflow");
}

}  // namespace
}  // namespace simt
