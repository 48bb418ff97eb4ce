#include "kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/activation/activation_tables.h"
#include "kernels/activation/vector_exp.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

std::vector<float> random_floats(int64_t count, uint32_t seed, float spread) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// Rows [first, first + count) of gate_up in a launch of their own.
std::vector<float> swiglu(const std::vector<float>& gate_up, int64_t width, int64_t first,
                          int64_t count) {
  const test::DeviceArray<float> in(gate_up);
  const test::DeviceArray<float> out(static_cast<size_t>(count * width), -7.0f);
  launch_swiglu({view<const float>(in.data() + first * 2 * width, count, 2 * width),
                 view(out.data(), count, width)},
                test::stream());
  return out.download();
}

TEST(Swiglu, equals_the_reference) {
  for (int64_t width : {1, 15, 16, 17, 100, 2048}) {
    for (float spread : {0.1f, 3.0f, 40.0f}) {
      const auto gate_up = random_floats(3 * 2 * width, 1, spread);
      std::vector<float> want(static_cast<size_t>(3 * width));
      swiglu_ref({view(gate_up.data(), 3, 2 * width), view(want.data(), 3, width)});
      const auto got = swiglu(gate_up, width, 0, 3);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-6f * std::fabs(want[i]) + 1e-30f) << "width " << width;
      }
    }
  }
}

TEST(Swiglu, gives_the_bits_of_the_base_instruction_set) {
  for (float spread : {0.1f, 3.0f, 40.0f}) {
    constexpr int64_t kWidth = 2050;
    const auto gate_up = random_floats(2 * kWidth, 4, spread);
    std::vector<float> want(kWidth);
    swiglu_row(CpuIsa::kBase)(gate_up.data(), gate_up.data() + kWidth, kWidth, want.data());
    EXPECT_EQ(swiglu(gate_up, kWidth, 0, 1), want);
  }
}

TEST(Swiglu, goes_to_zero_for_a_very_negative_gate_and_to_the_gate_for_a_large_one) {
  const auto out = swiglu({-200.0f, -3e38f, 200.0f, 3e30f, 2.0f, 1.0f, 2.0f, 1.0f}, 4, 0, 1);
  EXPECT_NEAR(out[0], 0.0f, 1e-30f);
  EXPECT_LE(std::fabs(out[1]), 2.1f);  // 3e38 / exp(88): the clamp, not an overflow
  EXPECT_EQ(out[2], 400.0f);
  EXPECT_EQ(out[3], 3e30f);
}

TEST(Swiglu, gives_a_row_the_same_bits_alone_and_in_a_batch) {
  constexpr int64_t kRows = 40, kWidth = 1030;
  const auto gate_up = random_floats(kRows * 2 * kWidth, 2, 2.0f);
  set_num_kernel_threads(2);
  const auto all = swiglu(gate_up, kWidth, 0, kRows);
  set_num_kernel_threads(1);
  EXPECT_EQ(swiglu(gate_up, kWidth, 0, kRows), all);
  set_num_kernel_threads(0);
  for (int64_t row : {0, 1, 17, 39}) {
    const auto alone = swiglu(gate_up, kWidth, row, 1);
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * kWidth)) << row;
  }
}

TEST(Swiglu, works_in_place_over_the_gate_and_accepts_zero_rows) {
  constexpr int64_t kWidth = 37;
  const auto before = random_floats(2 * 2 * kWidth, 3, 2.0f);
  std::vector<float> want(2 * kWidth);
  swiglu_ref({view<const float>(before.data(), 2, 2 * kWidth), view(want.data(), 2, kWidth)});
  const test::DeviceArray<float> gate_up(before);
  const TensorView<float, 2> gate{gate_up.data(), {2, kWidth}, {2 * kWidth, 1}};
  launch_swiglu(
      {view<const float>(gate_up.data(), 0, 2 * kWidth), {gate_up.data(), {0, kWidth}, {1, 1}}},
      test::stream());
  EXPECT_EQ(gate_up.download(), before);
  launch_swiglu({view<const float>(gate_up.data(), 2, 2 * kWidth), gate}, test::stream());
  const auto after = gate_up.download();
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < kWidth; ++i) {
      EXPECT_NEAR(after[row * 2 * kWidth + i], want[row * kWidth + i], 1e-5f);
      EXPECT_EQ(after[(row * 2 + 1) * kWidth + i], before[(row * 2 + 1) * kWidth + i]);
    }
  }
}

#if !DHS_TEST_CUDA

float exp_of(float x) {
  Float16 lanes = Float16{} + x;
  exp16(lanes);
  return lanes[7];
}

TEST(VectorExp, is_within_its_documented_error) {
  for (double x = -87.2; x < 87.9; x += 0.00317) {
    const float argument = static_cast<float>(x);
    const double truth = std::exp(static_cast<double>(argument));
    ASSERT_NEAR(exp_of(argument) / truth, 1.0, 2e-7) << argument;
  }
}

TEST(VectorExp, is_exact_at_zero_and_gives_zero_for_impossible_events) {
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-0.0f), 1.0f);
  EXPECT_EQ(exp_of(-100.0f), 0.0f);
  EXPECT_EQ(exp_of(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isfinite(exp_of(1e30f)));
  EXPECT_TRUE(std::isnan(exp_of(NAN)));
}

void expect_row_equals_reference(CpuIsa isa, int64_t width, float spread) {
  const auto gate_up = random_floats(2 * width, 1, spread);
  std::vector<float> want(static_cast<size_t>(width)), got(want);
  swiglu_ref({view(gate_up.data(), 1, 2 * width), view(want.data(), 1, width)});
  swiglu_row(isa)(gate_up.data(), gate_up.data() + width, width, got.data());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-6f * std::fabs(want[i]) + 1e-30f)
        << cpu_isa_name(isa) << ", width " << width << ", gate " << gate_up[i];
  }
}

TEST(SwigluTables, equal_the_reference_on_every_instruction_set) {
  for (CpuIsa isa : {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (!cpu_supports(isa)) continue;
    for (int64_t width : {1, 15, 16, 17, 100, 2048}) {
      for (float spread : {0.1f, 3.0f, 40.0f}) {
        expect_row_equals_reference(isa, width, spread);
        if (HasFatalFailure()) return;
      }
    }
  }
}

#endif

}  // namespace
}  // namespace dhs
