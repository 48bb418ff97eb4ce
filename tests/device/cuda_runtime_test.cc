// The CUDA device with the real runtime, in a program that no driver has to be there for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dhisparse/communicator.h"
#include "dhisparse/device.h"

namespace dhs {
namespace {

using testing::HasSubstr;

TEST(CudaRuntime, opens_a_gpu_or_says_the_same_of_why_not_with_auto_and_with_cuda) {
  testing::internal::CaptureStderr();
  const auto automatic = open_device({.backend = BackendKind::kAuto});
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  const auto cuda = open_device({.backend = BackendKind::kCuda});
  EXPECT_EQ(cuda.ok(), (*automatic)->kind() == BackendKind::kCuda);
  if (cuda.ok()) {
    EXPECT_EQ((*cuda)->description(), (*automatic)->description());
    return;
  }
  EXPECT_EQ(cuda.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string prefix = "device.backend: cuda: ";
  const std::string words(cuda.status().message());
  ASSERT_EQ(words.substr(0, prefix.size()), prefix);
  EXPECT_THAT(log,
              HasSubstr("device.backend: auto: using the CPU: " + words.substr(prefix.size())));
  EXPECT_THAT(words, HasSubstr("; "));  // a remedy
}

TEST(CudaRuntime, ranks_on_gpus_that_are_not_there_are_a_failed_precondition) {
  EXPECT_EQ(make_nccl_communicators({1023}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace dhs
