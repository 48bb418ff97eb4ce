// Device functions against results from the manual, worked out another way.
#include "simt/kernels/functions.cuh"

#include <cmath>
#include <numeric>
#include <vector>

#include "simt/launch_fixture.h"

namespace simt {
namespace {

class FunctionsTest : public LaunchTest {};

TEST_F(FunctionsTest, integer_functions_follow_the_manual) {
  const DeviceBuffer<uint64_t> results(functions::kNumIntegerResults);
  const unsigned a = 0x00f03412;
  const unsigned b = 0x80000765;
  ASSERT_TRUE(succeeded(launch(functions::integers, 1, 1, 0, nullptr, a, b, results.data())));
  const unsigned __int128 wide = uint64_t{a} << 32 | b;
  const int64_t signed_product = int64_t{int(a)} * int(b);
  const std::vector<uint64_t> expected = {
      9,                               // bits of a
      9 + 8,                           // and of b
      8,                               // leading zeros of a
      8,                               // and of {a, b}
      2,                               // lowest bit of a, from 1
      1,                               // and of {a, b}
      0x482c0f00,                      // a, mirrored
      uint64_t{a} * b >> 32,           //
      uint32_t(signed_product >> 32),  //
      uint64_t(wide * wide >> 64),     //
      0x80070034,                      // bytes 7, 5, 3, 1 of {b, a}
      a,                               // bytes 3 to 0
      0x000000ff,                      // signs of bytes 0 (thrice) and 7
      uint32_t(b << 8 | a >> 24),      //
      uint32_t(a >> 8 | b << 24),      // 40 counts as 8
      a,                               // 40 counts as 32
      b,                               //
      0x12 * 0x65 + 0x34 * 7 + 7,      // the other bytes meet zeros
      2,                               // 2.5 to even
      uint32_t(-2),                    // -2.9 towards zero
      uint32_t(-3),                    // -2.1 down
      3,                               // 2.1 up
      0x7fffffff,                      // 1e20
      b,                               // is negative
  };
  EXPECT_EQ(results.download(), expected);
}

TEST_F(FunctionsTest, rounded_functions_round_once) {
  const DeviceBuffer<float> results(functions::kNumFloatResults);
  const float a = 1.1f;
  const float b = 3.3f;
  ASSERT_TRUE(succeeded(launch(functions::floats, 1, 1, 0, nullptr, a, b, results.data())));
  const auto actual = results.download();
  const std::vector<float> exact = {float(double(a) + b),
                                    float(double(a) - b),
                                    float(double(a) * b),
                                    float(double(a) / b),
                                    float(double(a) * b - double(a * b)),
                                    float(1 / double(a)),
                                    float(std::sqrt(double(a))),
                                    float(1 / std::sqrt(double(a)))};
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(actual[i], exact[i]) << i;
  EXPECT_NEAR(actual[8], std::exp2(double(a)), 1e-6);
  EXPECT_NEAR(actual[9], std::log2(double(a)), 1e-6);
  EXPECT_EQ(actual[10], a) << "max passes a NaN over";
  const double bf16_a = __bfloat162float(__float2bfloat16(a));
  const double bf16_b = __bfloat162float(__float2bfloat16(b));
  EXPECT_EQ(actual[11], __bfloat162float(__double2bfloat16(bf16_a * bf16_b + 1)));
}

TEST_F(FunctionsTest, collectives_follow_the_manual) {
  for (uint64_t seed : {0, 9}) {
    options().seed = seed;
    const DeviceBuffer<functions::WarpResults> results(32);
    ASSERT_TRUE(succeeded(launch(functions::collectives, 1, 32, 0, nullptr, results.data())));
    const auto actual = results.download();
    for (int lane = 0; lane < 32; ++lane) {
      const auto& own = actual[size_t(lane)];
      EXPECT_EQ(own.from_lane_3, 3 * 3 - 40);
      EXPECT_EQ(own.up_1, float(lane == 0 ? 0 : lane - 1));
      EXPECT_EQ(own.down_1, double(lane == 31 ? 31 : lane + 1));
      EXPECT_EQ(own.xor_1, int64_t{lane ^ 1} << 40);
      EXPECT_EQ(own.both_of_bf16, 510u);
      EXPECT_EQ(own.min_signed, -40);
      EXPECT_EQ(own.max_signed, 53);
      EXPECT_EQ(own.min_unsigned, 2u) << "-40 + 3 * 14";
      EXPECT_EQ(own.max_unsigned, unsigned(-1));
      EXPECT_EQ(own.all_and, 0xf0u);
      EXPECT_EQ(own.all_or, 0xffffu);
      EXPECT_EQ(own.all_xor, 32u) << "1 ^ 2 ^ ... ^ 31 is 0";
      unsigned same = 0;
      for (int other = lane % 5; other < 32; other += 5) same |= 1u << other;
      EXPECT_EQ(own.same_modulo_5, same);
      EXPECT_EQ(own.segment_sum, 8 * (lane / 8 * 8) + 28);
    }
  }
}

TEST_F(FunctionsTest, atomics_lose_nothing) {
  const int n = 4 * 64;
  functions::Counters zero{};
  zero.common_bits = ~0u;
  zero.greatest = -1;
  const DeviceBuffer<functions::Counters> counters(std::vector<functions::Counters>{zero});
  ASSERT_TRUE(succeeded(launch(functions::atomics, 4, 64, 0, nullptr, counters.data())));
  const functions::Counters actual = counters.download()[0];
  EXPECT_EQ(actual.sum, -n * (n - 1) / 2);
  EXPECT_EQ(actual.wrapping_sum, unsigned(-n * (n - 1) / 2));
  EXPECT_EQ(actual.wide_sum, uint64_t(n) << 33);
  EXPECT_EQ(actual.float_sum, n / 2.0f);
  EXPECT_EQ(actual.least, 1 - n);
  EXPECT_EQ(actual.greatest, n - 1);
  EXPECT_EQ(actual.bits, ~0u);
  EXPECT_EQ(actual.common_bits, ~0x7fu);
  EXPECT_EQ(actual.parity, 0u);
  EXPECT_GE(actual.last, 0);
  EXPECT_LT(actual.last, n);
  EXPECT_EQ(actual.by_swapping, n);
}

TEST_F(FunctionsTest, hints_change_no_bytes) {
  std::vector<unsigned> values(4 * 64);
  std::iota(values.begin(), values.end(), 0u);
  const DeviceBuffer<unsigned> x(values);
  const DeviceBuffer<unsigned> y(values.size());
  ASSERT_TRUE(succeeded(launch(functions::hinted_copy, 1, 64, 0, nullptr,
                               reinterpret_cast<const uint4*>(x.data()),
                               reinterpret_cast<uint4*>(y.data()))));
  EXPECT_EQ(y.download(), values);
}

}  // namespace
}  // namespace simt
