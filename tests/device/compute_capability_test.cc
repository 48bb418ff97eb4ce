#include "device/compute_capability.h"

#include <gtest/gtest.h>

namespace dhs {
namespace {

constexpr char kUsual[] = "80-real,90a-real,100a-real";

TEST(ComputeCapability, real_code_runs_on_its_major_version_from_its_minor_one_on) {
  EXPECT_TRUE(has_kernels_for(80, kUsual));
  EXPECT_TRUE(has_kernels_for(86, kUsual));
  EXPECT_TRUE(has_kernels_for(89, kUsual));
  EXPECT_FALSE(has_kernels_for(80, "86-real"));
  EXPECT_FALSE(has_kernels_for(75, kUsual));
}

TEST(ComputeCapability, code_of_one_architecture_alone_runs_on_no_other) {
  EXPECT_TRUE(has_kernels_for(90, kUsual));
  EXPECT_TRUE(has_kernels_for(100, kUsual));
  EXPECT_FALSE(has_kernels_for(103, kUsual));
  EXPECT_FALSE(has_kernels_for(120, kUsual));
  EXPECT_FALSE(has_kernels_for(120, "90a"));
}

TEST(ComputeCapability, code_of_a_family_runs_within_it) {
  EXPECT_TRUE(has_kernels_for(103, "100f-real"));
  EXPECT_FALSE(has_kernels_for(110, "100f"));
}

TEST(ComputeCapability, virtual_code_runs_on_everything_newer) {
  EXPECT_TRUE(has_kernels_for(120, "80-virtual"));
  EXPECT_TRUE(has_kernels_for(120, "80-real,80"));
  EXPECT_FALSE(has_kernels_for(75, "80"));
}

TEST(ComputeCapability, no_list_or_an_odd_one_has_no_kernels) {
  EXPECT_FALSE(has_kernels_for(80, ""));
  EXPECT_FALSE(has_kernels_for(80, "native,,all"));
}

}  // namespace
}  // namespace dhs
