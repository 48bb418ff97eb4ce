#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;
using Floats = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Floats random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Rows of x are `stride` apart; the result is dense.
Floats softmax(const Floats& x, int64_t stride, int64_t width, const Floats& temperatures) {
  const auto num_rows = static_cast<int64_t>(temperatures.size());
  const DeviceArray<float> logits(x), device_temperatures(temperatures);
  const DeviceArray<float> out(static_cast<size_t>(num_rows * width), -7.0f);
  launch_softmax({.logits = {logits.data(), {num_rows, width}, {stride, 1}},
                  .temperature = view<const float>(device_temperatures.data(), num_rows),
                  .out = view(out.data(), num_rows, width)},
                 test::stream());
  return out.download();
}

Floats softmax_by_ref(const Floats& x, int64_t stride, int64_t width, const Floats& temperatures) {
  const auto num_rows = static_cast<int64_t>(temperatures.size());
  Floats out(static_cast<size_t>(num_rows * width));
  softmax_ref({.logits = {x.data(), {num_rows, width}, {stride, 1}},
               .temperature = view(temperatures.data(), num_rows),
               .out = view(out.data(), num_rows, width)});
  return out;
}

TEST(Softmax, equals_the_reference_for_any_width_and_temperature) {
  const Floats temperatures = {1.0f, 0.3f, 0.0f, 7.5f};
  for (int64_t width : {1, 2, 15, 16, 17, 96, 1000, 4096, 4097, 9001}) {
    const int64_t stride = width + 3;
    const Floats x = random_floats(4 * stride, 1);
    const Floats got = softmax(x, stride, width, temperatures),
                 want = softmax_by_ref(x, stride, width, temperatures);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 2e-5f * want[i] + 1e-35f) << i << " of width " << width;
    }
  }
}

TEST(Softmax, sums_to_one_over_a_large_vocabulary) {
  constexpr int64_t kWidth = 40000;
  const Floats got = softmax(random_floats(kWidth, 2), kWidth, kWidth, {1.0f});
  double sum = 0;
  for (float p : got) sum += p;
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

TEST(Softmax, chooses_the_lowest_of_equals_at_temperature_zero) {
  Floats x(300, 1.0f);
  x[77] = x[200] = x[299] = 2.0f;
  Floats want(300, 0.0f);
  want[77] = 1.0f;
  EXPECT_EQ(softmax(x, 300, 300, {0.0f}), want);
}

TEST(Softmax, stays_finite_at_extreme_logits_and_temperatures) {
  const Floats x = {3e38f, -3e38f, 3e38f, -kInfinity};
  EXPECT_EQ(softmax(x, 4, 4, {1.0f}), (Floats{0.5f, 0, 0.5f, 0}));
  EXPECT_EQ(softmax({1, 2, -kInfinity, 2}, 4, 4, {1e-38f}), (Floats{0, 0.5f, 0, 0.5f}));
  EXPECT_EQ(softmax({-500, -501, -600, -700}, 4, 4, {1e30f}), Floats(4, 0.25f));
}

TEST(Softmax, works_in_place) {
  const Floats x = random_floats(2 * 50, 3), temperatures = {0.0f, 1.0f};
  const DeviceArray<float> values(x), device_temperatures(temperatures);
  launch_softmax({.logits = view<const float>(values.data(), 2, 50),
                  .temperature = view<const float>(device_temperatures.data(), 2),
                  .out = view(values.data(), 2, 50)},
                 test::stream());
  EXPECT_EQ(values.download(), softmax(x, 50, 50, temperatures));
}

TEST(Softmax, gives_a_row_the_same_bits_alone_and_in_a_batch) {
  constexpr int64_t kWidth = 5000;
  const Floats x = random_floats(4 * kWidth, 4), temperatures = {1, 0, 0.5f, 2};
  set_num_kernel_threads(2);
  const Floats all = softmax(x, kWidth, kWidth, temperatures);
  set_num_kernel_threads(1);
  EXPECT_EQ(softmax(x, kWidth, kWidth, temperatures), all);
  set_num_kernel_threads(0);
  for (int64_t row = 0; row < 4; ++row) {
    const Floats one(x.begin() + row * kWidth, x.begin() + (row + 1) * kWidth);
    EXPECT_EQ(softmax(one, kWidth, kWidth, {temperatures[static_cast<size_t>(row)]}),
              Floats(all.begin() + row * kWidth, all.begin() + (row + 1) * kWidth));
  }
}

TEST(Softmax, takes_no_rows_as_nothing_to_do) { EXPECT_TRUE(softmax({}, 8, 8, {}).empty()); }

}  // namespace
}  // namespace dhs
