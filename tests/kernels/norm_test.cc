#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/norm/norm_tables.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

constexpr int64_t kWidths[] = {1, 2, 15, 16, 17, 64, 100, 128, 1536, 7168, 16390};

std::vector<float> random_floats(int64_t count, uint32_t seed, float mean = 0.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << "element " << i;
  }
}

struct Case {
  std::vector<float> x, weight, bias;
  int64_t width = static_cast<int64_t>(weight.size());
  int64_t num_rows = static_cast<int64_t>(x.size()) / width;

  // Rows [first, first + count) in a launch of their own.
  std::vector<float> rms(int64_t first, int64_t count) const {
    const test::DeviceArray<float> in(x), device_weight(weight);
    const test::DeviceArray<float> out(static_cast<size_t>(count * width), -7.0f);
    launch_rms_norm({.x = view<const float>(in.data() + first * width, count, width),
                     .weight = device_weight.data(),
                     .eps = 1e-5f,
                     .out = view(out.data(), count, width)},
                    test::stream());
    return out.download();
  }
  std::vector<float> layer(int64_t first, int64_t count) const {
    const test::DeviceArray<float> in(x), device_weight(weight), device_bias(bias);
    const test::DeviceArray<float> out(static_cast<size_t>(count * width), -7.0f);
    launch_layer_norm({.x = view<const float>(in.data() + first * width, count, width),
                       .weight = device_weight.data(),
                       .bias = device_bias.data(),
                       .eps = 1e-5f,
                       .out = view(out.data(), count, width)},
                      test::stream());
    return out.download();
  }
};

Case make_case(int64_t num_rows, int64_t width, float mean = 0.0f) {
  return {random_floats(num_rows * width, 1, mean), random_floats(width, 2),
          random_floats(width, 3)};
}

TEST(RmsNorm, equals_the_reference) {
  for (int64_t width : kWidths) {
    const Case test = make_case(3, width);
    std::vector<float> want(test.x.size());
    rms_norm_ref(
        {view(test.x.data(), 3, width), test.weight.data(), 1e-5f, view(want.data(), 3, width)});
    expect_close(test.rms(0, 3), want, 2e-6f);
  }
}

TEST(LayerNorm, equals_the_reference) {
  for (int64_t width : kWidths) {
    const Case test = make_case(3, width, 3.0f);
    std::vector<float> want(test.x.size());
    layer_norm_ref({view(test.x.data(), 3, width), test.weight.data(), test.bias.data(), 1e-5f,
                    view(want.data(), 3, width)});
    expect_close(test.layer(0, 3), want, 1e-5f);
  }
}

TEST(Norm, gives_the_bits_of_the_base_instruction_set) {
  const NormTable& table = norm_table(CpuIsa::kBase);
  for (int64_t width : kWidths) {
    const Case test = make_case(2, width, 1.0f);
    const float* const weight_and_bias[2] = {test.weight.data(), test.bias.data()};
    std::vector<float> rms(test.x.size()), layer(test.x.size());
    for (int64_t i = 0; i < 2 * width; i += width) {
      table.rms_norm(&test.x[i], test.weight.data(), 1e-5f, width, &rms[i]);
      table.layer_norm(&test.x[i], weight_and_bias, 1e-5f, width, &layer[i]);
    }
    EXPECT_EQ(test.rms(0, 2), rms) << "width " << width;
    EXPECT_EQ(test.layer(0, 2), layer) << "width " << width;
  }
}

TEST(Norm, gives_a_row_the_same_bits_in_any_batch_and_with_any_threads) {
  constexpr int64_t kRows = 40;
  for (int64_t width : {17, 100, 2050}) {
    const Case test = make_case(kRows, width, 1.0f);
    set_num_kernel_threads(2);
    const auto rms = test.rms(0, kRows), layer = test.layer(0, kRows);
    set_num_kernel_threads(1);
    EXPECT_EQ(test.rms(0, kRows), rms);
    EXPECT_EQ(test.layer(0, kRows), layer);
    set_num_kernel_threads(0);
    for (int64_t row : {0, 1, 31, 39}) {
      const auto rms_alone = test.rms(row, 1), layer_alone = test.layer(row, 1);
      EXPECT_TRUE(std::equal(rms_alone.begin(), rms_alone.end(), &rms[row * width])) << row;
      EXPECT_TRUE(std::equal(layer_alone.begin(), layer_alone.end(), &layer[row * width])) << row;
    }
  }
}

TEST(RmsNorm, keeps_zero_rows_at_zero_and_works_in_place_on_strided_rows) {
  constexpr int64_t kWidth = 20, kStride = 23;
  auto before = random_floats(3 * kStride, 5);
  std::fill_n(before.begin() + kStride, kWidth, 0.0f);
  const auto weight = random_floats(kWidth, 6);
  std::vector<float> want(3 * kWidth);
  rms_norm_ref({{before.data(), {3, kWidth}, {kStride, 1}},
                weight.data(),
                1e-6f,
                view(want.data(), 3, kWidth)});
  const test::DeviceArray<float> x(before), device_weight(weight);
  launch_rms_norm({.x = {x.data(), {3, kWidth}, {kStride, 1}},
                   .weight = device_weight.data(),
                   .eps = 1e-6f,
                   .out = {x.data(), {3, kWidth}, {kStride, 1}}},
                  test::stream());
  const auto got = x.download();
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t i = 0; i < kStride; ++i) {
      if (i >= kWidth) {
        EXPECT_EQ(got[row * kStride + i], before[row * kStride + i]);
      } else {
        EXPECT_NEAR(got[row * kStride + i], want[row * kWidth + i], 1e-5f);
      }
    }
  }
  EXPECT_EQ(got[kStride], 0.0f);
}

TEST(HeadNorm, gives_every_head_the_bits_of_a_row_of_its_own) {
  constexpr int64_t kTokens = 3, kHeads = 5, kWidth = 24, kStride = kHeads * kWidth + 7;
  const auto before = random_floats(kTokens * kStride, 5), weight = random_floats(kWidth, 6);
  const test::DeviceArray<float> x(before), device_weight(weight);
  const TensorView<float, 3> heads{x.data(), {kTokens, kHeads, kWidth}, {kStride, kWidth, 1}};
  launch_head_norm({heads, device_weight.data(), 1e-6f, heads}, test::stream());
  const auto got = x.download();
  auto want = before;
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t head = 0; head < kHeads; ++head) {
      float* row = &want[token * kStride + head * kWidth];
      norm_table(CpuIsa::kBase).rms_norm(row, weight.data(), 1e-6f, kWidth, row);
    }
  }
  EXPECT_EQ(got, want);
}

TEST(Norm, accepts_zero_rows) {
  const test::DeviceArray<float> value(1, -1.0f);
  launch_rms_norm({.x = view<const float>(value.data(), 0, 1),
                   .weight = value.data(),
                   .eps = 1e-6f,
                   .out = view(value.data(), 0, 1)},
                  test::stream());
  launch_layer_norm({view<const float>(value.data(), 0, 1), value.data(), value.data(), 1e-6f,
                     view(value.data(), 0, 1)},
                    test::stream());
  EXPECT_EQ(value.download(), std::vector<float>{-1.0f});
}

#if !DHS_TEST_CUDA

TEST(NormTables, equal_the_reference_on_every_instruction_set) {
  for (CpuIsa isa : {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (!cpu_supports(isa)) continue;
    for (int64_t width : kWidths) {
      SCOPED_TRACE(cpu_isa_name(isa));
      const Case test = make_case(1, width, 3.0f);
      const float* const weight_and_bias[2] = {test.weight.data(), test.bias.data()};
      std::vector<float> want(test.x.size()), got(test.x.size());
      rms_norm_ref(
          {view(test.x.data(), 1, width), test.weight.data(), 1e-6f, view(want.data(), 1, width)});
      norm_table(isa).rms_norm(test.x.data(), test.weight.data(), 1e-6f, width, got.data());
      expect_close(got, want, 2e-6f);
      layer_norm_ref({view(test.x.data(), 1, width), test.weight.data(), test.bias.data(), 1e-6f,
                      view(want.data(), 1, width)});
      norm_table(isa).layer_norm(test.x.data(), weight_and_bias, 1e-6f, width, got.data());
      expect_close(got, want, 1e-5f);
    }
  }
}

#endif

}  // namespace
}  // namespace dhs
