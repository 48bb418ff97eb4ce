// wgmma: products over both layouts as plain loops compute them, and what is reported.
#include "simt/kernels/warpgroups.cuh"

#include <random>
#include <vector>

#include "simt/launch_fixture.h"

namespace simt {
namespace {

using warpgroups::Fault;
using warpgroups::Strides;

constexpr int kM = warpgroups::kM;

class WarpgroupsTest : public LaunchTest {
 protected:
  using Kernel = void (*)(const __nv_bfloat16*, const __nv_bfloat16*, float*, Strides);

  // Small integers: every product and sum is exact.
  std::vector<__nv_bfloat16> integers(int count) {
    std::vector<__nv_bfloat16> values(static_cast<size_t>(count));
    for (auto& value : values) value = __float2bfloat16(float(int(random_() % 21) - 10));
    return values;
  }

  static float at(const std::vector<__nv_bfloat16>& matrix, int i) {
    return __bfloat162float(matrix[static_cast<size_t>(i)]);
  }

  // a [64, depth] * b, which is [n, depth] or, with lines of n, [depth, n].
  static std::vector<float> expected(const std::vector<__nv_bfloat16>& a,
                                     const std::vector<__nv_bfloat16>& b, int depth,
                                     bool b_lines_hold_n) {
    const int n = static_cast<int>(b.size()) / depth;
    std::vector<float> c(static_cast<size_t>(kM * n));
    for (int i = 0; i < kM * n; ++i) {
      for (int k = 0; k < depth; ++k) {
        const float factor = at(b, b_lines_hold_n ? k * n + i % n : i % n * depth + k);
        c[static_cast<size_t>(i)] += at(a, i / n * depth + k) * factor;
      }
    }
    return c;
  }

  void expect_product(Kernel kernel, int n, bool b_lines_hold_n, Strides strides) {
    const auto a = integers(kM * warpgroups::kK), b = integers(n * warpgroups::kK);
    const DeviceBuffer<__nv_bfloat16> gmem_a(a), gmem_b(b);
    const DeviceBuffer<float> c(static_cast<size_t>(kM * n));
    constexpr int shared_bytes = 200 << 10;
    ASSERT_EQ(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
              cudaSuccess);
    ASSERT_TRUE(succeeded(launch(kernel, 1, 128, shared_bytes, nullptr, gmem_a.data(),
                                 gmem_b.data(), c.data(), strides)));
    EXPECT_EQ(c.download(), expected(a, b, warpgroups::kK, b_lines_hold_n));
  }

  // Of the product with a fault; `right`: whether it came out right.
  cudaError_t run(Fault fault, bool* right = nullptr) {
    const auto a = integers(kM * 64), b = integers(kM * 64);
    const DeviceBuffer<__nv_bfloat16> gmem_a(a), gmem_b(b);
    const DeviceBuffer<float> c(static_cast<size_t>(kM * 64));
    const cudaError_t error = launch(warpgroups::product, 1, 128, 16 << 10, nullptr, gmem_a.data(),
                                     gmem_b.data(), c.data(), fault);
    if (right != nullptr) *right = c.download() == expected(a, b, 64, false);
    return error;
  }

  std::mt19937 random_{7};
};

TEST_F(WarpgroupsTest, a_product_whose_lines_hold_k_is_exact) {
  expect_product(warpgroups::multiply_k_lines<64>, 64, false, {1024, 16 << 10});
  expect_product(warpgroups::multiply_k_lines<256>, 256, false, {1024, 32 << 10});
}

TEST_F(WarpgroupsTest, a_product_whose_lines_hold_n_is_exact) {
  expect_product(warpgroups::multiply_n_lines<64>, 64, true, {1024, 16 << 10});
  expect_product(warpgroups::multiply_n_lines<256>, 256, true, {1024, 16 << 10});
}

TEST_F(WarpgroupsTest, atoms_lie_where_the_strides_say) {
  expect_product(warpgroups::multiply_k_lines<64>, 64, false, {3072, 48 << 10});
  expect_product(warpgroups::multiply_n_lines<64>, 64, true, {2048, 33 << 10});
  expect_product(warpgroups::multiply_n_lines<256>, 256, true, {1024, 20 << 10});
}

TEST_F(WarpgroupsTest, the_order_of_warps_does_not_matter) {
  for (uint64_t seed : {0, 2, 9}) {
    options().seed = seed;
    bool right = false;
    EXPECT_TRUE(succeeded(run(Fault::none, &right)));
    EXPECT_TRUE(right) << seed;
  }
}

TEST_F(WarpgroupsTest, an_operand_without_its_swizzle_gives_another_product) {
  bool right = true;
  run(Fault::unswizzled, &right);
  EXPECT_FALSE(right);
}

TEST_F(WarpgroupsTest, sums_are_old_until_they_are_waited_for) {
  bool right = true;
  EXPECT_TRUE(succeeded(run(Fault::late_wait, &right)));
  EXPECT_FALSE(right);
}

TEST_F(WarpgroupsTest, an_operand_that_another_warp_still_reads_must_not_change) {
  bool right = true;
  const cudaError_t error = run(Fault::operand_in_use, &right);
  if (accesses_are_checked()) {
    EXPECT_TRUE(failed_with(error, "shared race: "));
  } else {
    EXPECT_FALSE(right);
  }
}

TEST_F(WarpgroupsTest, writes_that_no_proxy_fence_follows_are_found) {
  const cudaError_t error = run(Fault::missing_proxy_fence);
  if (accesses_are_checked()) {
    EXPECT_TRUE(failed_with(error, "missing fence.proxy.async: read of 16 bytes that thread"));
  }
}

TEST_F(WarpgroupsTest, registers_need_their_own_fence) {
  EXPECT_TRUE(failed_with(run(Fault::missing_fence), "wgmma without wgmma.fence"));
}

TEST_F(WarpgroupsTest, a_product_that_is_never_done_is_found) {
  EXPECT_TRUE(failed_with(run(Fault::missing_wait), "a wgmma was never waited for"));
  EXPECT_TRUE(failed_with(run(Fault::missing_commit), "a wgmma was never waited for"));
}

TEST_F(WarpgroupsTest, all_warps_of_a_warpgroup_must_issue_the_same) {
  EXPECT_TRUE(failed_with(run(Fault::disagreeing_warps), "warps of a warpgroup disagree"));
  EXPECT_TRUE(failed_with(run(Fault::absent_warps), "not all warps of a warpgroup"));
}

TEST_F(WarpgroupsTest, operands_must_lie_in_shared_memory) {
  EXPECT_TRUE(failed_with(run(Fault::outside_of_shared), "wgmma operand outside of"));
}

}  // namespace
}  // namespace simt
