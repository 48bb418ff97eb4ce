#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/norm/norm_tables.h"

namespace dhs {
namespace {

constexpr int64_t kWidths[] = {1, 2, 15, 16, 17, 64, 100, 128, 1536, 7168};

std::vector<CpuIsa> supported_isas() {
  std::vector<CpuIsa> isas;
  for (CpuIsa isa : {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (cpu_supports(isa)) isas.push_back(isa);
  }
  return isas;
}

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

struct RmsCase {
  std::vector<float> x, weight;
  std::vector<float> run(int64_t rows, int64_t first = 0) const {
    const int64_t width = static_cast<int64_t>(weight.size());
    std::vector<float> out(static_cast<size_t>(rows * width));
    launch_rms_norm({.x = view(x.data() + first * width, rows, width),
                     .weight = weight.data(),
                     .eps = 1e-5f,
                     .out = view(out.data(), rows, width)},
                    Stream{});
    return out;
  }
};

TEST(RmsNorm, equals_the_reference_on_every_instruction_set) {
  for (int64_t width : kWidths) {
    const auto x = random_floats(width, 1), weight = random_floats(width, 2);
    std::vector<float> want(x.size()), got(x.size());
    rms_norm_ref({view(x.data(), 1, width), weight.data(), 1e-6f, view(want.data(), 1, width)});
    for (CpuIsa isa : supported_isas()) {
      SCOPED_TRACE(cpu_isa_name(isa));
      norm_table(isa).rms_norm(x.data(), weight.data(), 1e-6f, width, got.data());
      expect_close(got, want, 2e-6f);
    }
  }
}

TEST(RmsNorm, gives_a_row_the_same_bits_in_any_batch_and_with_any_threads) {
  constexpr int64_t kRows = 50;
  for (int64_t width : kWidths) {
    const RmsCase rms{random_floats(kRows * width, 3), random_floats(width, 4)};
    set_num_kernel_threads(2);
    const auto all = rms.run(kRows);
    set_num_kernel_threads(1);
    EXPECT_EQ(rms.run(kRows), all);
    set_num_kernel_threads(0);
    for (int64_t row : {0, 1, 31, 49}) {
      const auto alone = rms.run(1, row);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * width)) << row;
    }
  }
}

TEST(RmsNorm, keeps_zero_rows_at_zero_and_works_in_place_on_strided_rows) {
  constexpr int64_t kWidth = 20, kStride = 23;
  auto x = random_floats(3 * kStride, 5);
  std::fill_n(x.begin() + kStride, kWidth, 0.0f);
  const auto weight = random_floats(kWidth, 6), before = x;
  std::vector<float> want(3 * kWidth);
  rms_norm_ref({{before.data(), {3, kWidth}, {kStride, 1}},
                weight.data(),
                1e-6f,
                view(want.data(), 3, kWidth)});
  launch_rms_norm({.x = {x.data(), {3, kWidth}, {kStride, 1}},
                   .weight = weight.data(),
                   .eps = 1e-6f,
                   .out = {x.data(), {3, kWidth}, {kStride, 1}}},
                  Stream{});
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t i = 0; i < kStride; ++i) {
      const float got = x[row * kStride + i];
      if (i >= kWidth) {
        EXPECT_EQ(got, before[row * kStride + i]);
      } else {
        EXPECT_NEAR(got, want[row * kWidth + i], 1e-5f);
      }
    }
  }
  EXPECT_EQ(x[kStride], 0.0f);
}

TEST(LayerNorm, equals_the_reference_on_every_instruction_set) {
  for (int64_t width : kWidths) {
    const auto x = random_floats(width, 7, 3.0f);
    const auto weight = random_floats(width, 8), bias = random_floats(width, 9);
    std::vector<float> want(x.size()), got(x.size());
    layer_norm_ref(
        {view(x.data(), 1, width), weight.data(), bias.data(), 1e-6f, view(want.data(), 1, width)});
    const float* const weight_and_bias[2] = {weight.data(), bias.data()};
    for (CpuIsa isa : supported_isas()) {
      SCOPED_TRACE(cpu_isa_name(isa));
      norm_table(isa).layer_norm(x.data(), weight_and_bias, 1e-6f, width, got.data());
      expect_close(got, want, 1e-5f);
    }
  }
}

TEST(LayerNorm, gives_a_row_the_same_bits_alone_and_in_a_batch) {
  constexpr int64_t kRows = 40, kWidth = 2050;
  const auto x = random_floats(kRows * kWidth, 10, 1.0f);
  const auto weight = random_floats(kWidth, 11), bias = random_floats(kWidth, 12);
  auto run = [&](int64_t first, int64_t rows) {
    std::vector<float> out(static_cast<size_t>(rows * kWidth));
    launch_layer_norm({view(x.data() + first * kWidth, rows, kWidth), weight.data(), bias.data(),
                       1e-6f, view(out.data(), rows, kWidth)},
                      Stream{});
    return out;
  };
  set_num_kernel_threads(2);
  const auto all = run(0, kRows);
  set_num_kernel_threads(0);
  for (int64_t row = 0; row < kRows; ++row) {
    const auto alone = run(row, 1);
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * kWidth)) << row;
  }
}

TEST(Norm, accepts_zero_rows) {
  float value = -1.0f;
  launch_rms_norm({.x = view<const float>(&value, 0, 1),
                   .weight = &value,
                   .eps = 1e-6f,
                   .out = view(&value, 0, 1)},
                  Stream{});
  launch_layer_norm({view<const float>(&value, 0, 1), &value, &value, 1e-6f, view(&value, 0, 1)},
                    Stream{});
  EXPECT_EQ(value, -1.0f);
}

}  // namespace
}  // namespace dhs
