#include "kernels/grouped_conv/grouped_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct ConvCase {
  int32_t num_taps = 2, group_channels = 16, block_rows = 8;
  int64_t channels = 64, num_rows = 16;

  int64_t delta_columns() const { return num_taps * (channels / group_channels); }
  int64_t x_stride() const { return channels + 3; }
  int64_t delta_stride() const { return delta_columns() + 7; }
};

struct Arrays {
  explicit Arrays(const ConvCase& c)
      : x(random_floats(c.num_rows * c.x_stride(), 1)),
        base(random_floats(c.num_taps * c.channels, 2)),
        delta(random_floats(c.num_rows * c.delta_stride(), 3)) {}
  std::vector<float> x, base, delta;
};

GroupedConvParams params_of(const ConvCase& c, const float* const x_base_delta[3], float* out) {
  return {.x = {x_base_delta[0], {c.num_rows, c.channels}, {c.x_stride(), 1}},
          .base_kernel = x_base_delta[1],
          .delta = {x_base_delta[2], {c.num_rows, c.delta_columns()}, {c.delta_stride(), 1}},
          .num_taps = c.num_taps,
          .group_channels = c.group_channels,
          .block_rows = c.block_rows,
          .out = view(out, c.num_rows, c.channels)};
}

std::vector<float> convolve(const ConvCase& c, const Arrays& arrays) {
  const DeviceArray<float> x(arrays.x), base(arrays.base), delta(arrays.delta);
  const DeviceArray<float> out(static_cast<size_t>(c.num_rows * c.channels), -7.0f);
  const float* const inputs[3] = {x.data(), base.data(), delta.data()};
  launch_grouped_conv(params_of(c, inputs, out.data()), test::stream());
  return out.download();
}

std::vector<float> convolve_ref(const ConvCase& c, const Arrays& arrays) {
  std::vector<float> out(static_cast<size_t>(c.num_rows * c.channels), -7.0f);
  const float* const inputs[3] = {arrays.x.data(), arrays.base.data(), arrays.delta.data()};
  grouped_conv_ref(params_of(c, inputs, out.data()));
  return out;
}

void expect_reference(const ConvCase& c) {
  const Arrays arrays(c);
  const std::vector<float> got = convolve(c, arrays), want = convolve_ref(c, arrays);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-5f * (1 + std::fabs(want[i])))
        << i << " of " << c.num_taps << " taps, " << c.block_rows << " rows, " << c.channels;
  }
}

TEST(GroupedConv, equals_the_reference_for_any_taps_groups_and_block_rows) {
  for (int32_t num_taps : {1, 2, 3, 4}) {
    for (int32_t block_rows : {1, 2, 3, 5, 8, 16}) {
      for (int64_t channels : {16, 48, 272}) {
        expect_reference({num_taps, 16, block_rows, channels, 3 * block_rows});
      }
    }
  }
}

TEST(GroupedConv, takes_groups_of_one_channel_and_of_all) {
  for (int32_t group_channels : {1, 5, 30}) expect_reference({3, group_channels, 4, 30, 8});
}

TEST(GroupedConv, is_no_operation_with_the_identity_kernel) {
  for (int32_t num_taps : {2, 3}) {
    const ConvCase c{num_taps, 16, 7, 64, 21};
    Arrays arrays(c);
    std::fill(arrays.base.begin(), arrays.base.end(), 0.0f);
    std::fill(arrays.base.begin(), arrays.base.begin() + c.channels, 1.0f);
    std::fill(arrays.delta.begin(), arrays.delta.end(), 0.0f);
    const std::vector<float> out = convolve(c, arrays);
    for (int64_t i = 0; i < c.num_rows * c.channels; ++i) {
      ASSERT_EQ(out[i], arrays.x[i / c.channels * c.x_stride() + i % c.channels]) << i;
    }
  }
}

// Each block's result must not change with what the block before it holds.
TEST(GroupedConv, never_looks_out_of_its_block) {
  for (int32_t num_taps : {2, 3}) {
    for (int32_t block_rows : {1, 3, 8}) {
      const ConvCase c{num_taps, 16, block_rows, 32, 2 * block_rows};
      Arrays arrays(c);
      const std::vector<float> before = convolve(c, arrays);
      std::fill_n(arrays.x.begin(), block_rows * c.x_stride(), 1e30f);
      const std::vector<float> after = convolve(c, arrays);
      const int64_t second = block_rows * c.channels;
      EXPECT_TRUE(std::equal(before.begin() + second, before.end(), after.begin() + second));
      EXPECT_NE(before[0], after[0]);
    }
  }
}

TEST(GroupedConv, reads_the_row_before_with_the_row_s_own_kernel) {
  const ConvCase c{2, 2, 2, 2, 2};
  Arrays arrays(c);
  arrays.x.assign(arrays.x.size(), 0.0f);
  arrays.delta.assign(arrays.delta.size(), 0.0f);
  arrays.base = {1, 1, 0, 0};
  arrays.x[0] = 3, arrays.x[1] = 4;                                // row 0
  arrays.delta[static_cast<size_t>(c.delta_stride() + 1)] = 0.5f;  // row 1, tap 1
  EXPECT_EQ(convolve(c, arrays), (std::vector<float>{3, 4, 1.5f, 2}));
}

TEST(GroupedConv, gives_the_same_bits_on_any_number_of_threads) {
  const ConvCase c{3, 16, 5, 4096, 25};
  const Arrays arrays(c);
  set_num_kernel_threads(2);
  const std::vector<float> two = convolve(c, arrays);
  set_num_kernel_threads(1);
  EXPECT_EQ(convolve(c, arrays), two);
  set_num_kernel_threads(0);
}

TEST(GroupedConv, takes_no_rows_as_nothing_to_do) {
  const ConvCase c{.num_rows = 0};
  EXPECT_TRUE(convolve(c, Arrays(c)).empty());
}

}  // namespace
}  // namespace dhs
