#include "kernels/quantize/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/quantize/e4m3.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

struct Quantized {
  std::vector<F8E4m3> q;
  std::vector<float> scales;
};

int64_t num_blocks(int64_t width) { return (width + kQuantizeBlock - 1) / kQuantizeBlock; }

// x: rows of `stride`, the first `width` of each quantised.
Quantized quantized(const std::vector<float>& x, int64_t rows, int64_t width, int64_t stride) {
  const test::DeviceArray<float> device_x(x);
  const test::DeviceArray<F8E4m3> q(static_cast<size_t>(rows * width), F8E4m3{0x55});
  const test::DeviceArray<float> scales(static_cast<size_t>(rows * num_blocks(width)), -7.0f);
  launch_quantize({.x = {device_x.data(), {rows, width}, {stride, 1}},
                   .q = view(q.data(), rows, width),
                   .scales = view(scales.data(), rows, num_blocks(width))},
                  test::stream());
  return {q.download(), scales.download()};
}

Quantized reference(const std::vector<float>& x, int64_t rows, int64_t width, int64_t stride) {
  Quantized want{std::vector<F8E4m3>(static_cast<size_t>(rows * width)),
                 std::vector<float>(static_cast<size_t>(rows * num_blocks(width)))};
  quantize_ref({.x = {x.data(), {rows, width}, {stride, 1}},
                .q = view(want.q.data(), rows, width),
                .scales = view(want.scales.data(), rows, num_blocks(width))});
  return want;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

// Magnitudes over many binades, so that every branch of the rounding is met.
std::vector<float> wide_noise(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-12, 3);
  std::vector<float> values(count);
  for (float& value : values) value = std::ldexp(normal(generator), exponent(generator));
  return values;
}

TEST(E4m3, encodes_every_kind_of_float_as_the_codec_does) {
  std::vector<float> values = wide_noise(100000, 1);
  for (int code = 0; code < 256; ++code) {
    const float value = f8e4m3_to_f32(static_cast<F8E4m3>(code));
    // The value, the ties beside it, and what lies next to those.
    for (float scale : {1.0f, 1.0625f, 0.96875f, 0.9375f, 1.03125f, 1.5f, 0.5f}) {
      const float near = value * scale;
      for (float to : {-INFINITY, INFINITY}) values.push_back(std::nextafter(near, to));
      values.push_back(near);
    }
  }
  for (float value : {0.0f, -0.0f, 448.0f, 464.0f, 1e30f, -1e30f, INFINITY, -INFINITY, 1e-30f}) {
    values.push_back(value);
  }
  for (float value : values) {
    if (std::isnan(value)) continue;
    ASSERT_EQ(e4m3::encode(value), f32_to_f8e4m3(value)) << value;
  }
  EXPECT_EQ(e4m3::encode(NAN) & 0x7f, 0x7f);
}

TEST(E4m3, decodes_every_code_as_the_codec_does) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<F8E4m3>(code);
    const float want = f8e4m3_to_f32(bits), got = e4m3::decode(bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      EXPECT_EQ(bits_of({got}), bits_of({want})) << code;
    }
  }
}

TEST(Quantize, gives_the_bits_of_the_reference_for_any_width_and_stride) {
  for (int64_t width : {1, 3, 127, 128, 129, 500, 640}) {
    constexpr int64_t kRows = 5;
    const int64_t stride = width + 3;
    const auto x = wide_noise(static_cast<size_t>(kRows * stride), 2);
    const Quantized got = quantized(x, kRows, width, stride);
    const Quantized want = reference(x, kRows, width, stride);
    EXPECT_EQ(got.q, want.q) << "width " << width;
    EXPECT_EQ(bits_of(got.scales), bits_of(want.scales)) << "width " << width;
  }
}

TEST(Quantize, takes_the_smallest_power_of_two_that_holds_the_block) {
  const float at = 448.0f * 0.25f;
  for (auto [amax, scale] : {std::pair{at, 0.25f},
                             {std::nextafter(at, 1e9f), 0.5f},
                             {std::nextafter(at, 0.0f), 0.25f},
                             {0.0f, 0x1p-22f},
                             {1e-4f, 0x1p-22f},
                             {3.0e38f, 0x1p120f}}) {
    std::vector<float> x(128, 0.0f);
    x[77] = -amax;
    EXPECT_EQ(quantized(x, 1, 128, 128).scales, std::vector<float>{scale}) << amax;
  }
}

TEST(Quantize, marks_a_block_that_is_not_finite_and_no_other) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(2 * 384, 1.0f);
    x[384 + 130] = bad;  // row 1, block 1
    const Quantized got = quantized(x, 2, 384, 384);
    for (size_t block = 0; block < 6; ++block) {
      const bool is_bad = block == 4;
      EXPECT_EQ(std::isnan(got.scales[block]), is_bad) << block;
      for (size_t i = 0; i < 128; ++i) {
        EXPECT_EQ(got.q[block * 128 + i] == 0, is_bad) << block << ", " << i;
      }
    }
  }
}

TEST(Quantize, takes_no_rows_as_nothing_to_do) {
  launch_quantize({.x = view<const float>(nullptr, 0, 256),
                   .q = view<F8E4m3>(nullptr, 0, 256),
                   .scales = view<float>(nullptr, 0, 2)},
                  test::stream());
}

}  // namespace
}  // namespace dhs
