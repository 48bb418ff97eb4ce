#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "dhisparse/tensor.h"

namespace dhs {
namespace {

constexpr double kBeyondBf16 = 0x1p128;  // where the next bf16 would lie, were it not infinity

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

// The value a rounding sees: infinity stands for the first number out of range.
double bf16_value(Bf16 code) {
  if (code == 0x7f80) return kBeyondBf16;
  const int exponent = (code >> 7) & 0xff;
  const int mantissa = code & 0x7f;
  if (exponent == 0) return std::ldexp(mantissa, -126 - 7);
  return std::ldexp(128 + mantissa, exponent - 127 - 7);
}

// Of the two codes around a magnitude, the nearer one; of two equally near ones, the even one.
template <class Value>
int nearest_code(double magnitude, int below, const Value& value_of) {
  const double down = magnitude - value_of(below);
  const double up = value_of(below + 1) - magnitude;
  if (down != up) return down < up ? below : below + 1;
  return below % 2 == 0 ? below : below + 1;
}

void expect_bf16_rounds(uint32_t bits) {
  const float value = from_bits(bits);
  const uint32_t sign = bits >> 31;
  const auto below = static_cast<int>((bits & 0x7fffffffu) >> 16);
  const int nearest =
      nearest_code(std::fabs(double{value}), below, [](int code) { return bf16_value(code); });
  ASSERT_EQ(f32_to_bf16(value), (sign << 15) | nearest) << std::hex << "f32 bits " << bits;
}

TEST(Bf16, every_code_survives_the_way_to_f32_and_back) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = bf16_to_f32(static_cast<Bf16>(code));
    if ((code & 0x7fff) > 0x7f80) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value)))) << code;
      continue;
    }
    ASSERT_EQ(f32_to_bf16(value), code);
    if ((code & 0x7fff) == 0x7f80) continue;
    const double magnitude = bf16_value(static_cast<Bf16>(code & 0x7fff));
    ASSERT_EQ(double{value}, code < 0x8000 ? magnitude : -magnitude) << code;
  }
}

TEST(Bf16, rounds_to_nearest_even_at_and_around_every_midpoint) {
  for (uint32_t sign : {0u, 0x80000000u}) {
    for (uint32_t code = 0; code < 0x7f80; ++code) {
      for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        expect_bf16_rounds(sign | (code << 16) | low);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Bf16, rounds_random_values_to_nearest_even) {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    if ((bits & 0x7fffffffu) >= 0x7f800000u) continue;
    expect_bf16_rounds(bits);
    if (HasFatalFailure()) return;
  }
}

TEST(Bf16, no_nan_becomes_an_infinity_or_a_number) {
  for (uint32_t sign : {0u, 0x80000000u}) {
    for (uint32_t payload : {1u, 0x7fffu, 0x8000u, 0xffffu, 0x3fffffu, 0x400000u, 0x7fffffu}) {
      const Bf16 code = f32_to_bf16(from_bits(sign | 0x7f800000u | payload));
      EXPECT_TRUE(std::isnan(bf16_to_f32(code))) << payload;
      EXPECT_EQ(code >> 15, sign >> 31) << payload;
    }
  }
}

TEST(Bf16, values_past_the_last_midpoint_overflow_to_infinity) {
  EXPECT_EQ(f32_to_bf16(from_bits(0x7f7f7fffu)), 0x7f7f);
  EXPECT_EQ(f32_to_bf16(from_bits(0x7f7f8000u)), 0x7f80);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::infinity()), 0x7f80);
}

// Code 0x7e is the largest finite one; 0x7f stands for the first magnitude out of range.
double f8_value(int code) {
  const int exponent = code / 8;
  const double fraction = code % 8 / 8.0;
  if (exponent == 0) return fraction / 64;
  return (1 + fraction) * std::pow(2.0, exponent - 7);
}

F8E4m3 nearest_f8(float value) {
  const F8E4m3 sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::fabs(double{value});
  if (magnitude >= 448) return sign | 0x7e;
  int below = 0;
  while (f8_value(below + 1) <= magnitude) ++below;
  return sign | static_cast<F8E4m3>(nearest_code(magnitude, below, f8_value));
}

void expect_f8_rounds(float value) {
  ASSERT_EQ(f32_to_f8e4m3(value), nearest_f8(value)) << std::hexfloat << value;
}

TEST(F8E4m3, known_codes_have_their_published_values) {
  EXPECT_EQ(f8e4m3_to_f32(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(f8e4m3_to_f32(0x80)));
  EXPECT_EQ(f8e4m3_to_f32(0x01), 0x1p-9f);  // smallest subnormal
  EXPECT_EQ(f8e4m3_to_f32(0x07), 7 * 0x1p-9f);
  EXPECT_EQ(f8e4m3_to_f32(0x08), 0x1p-6f);  // smallest normal
  EXPECT_EQ(f8e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(f8e4m3_to_f32(0xc0), -2.0f);
  EXPECT_EQ(f8e4m3_to_f32(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(f8e4m3_to_f32(0x7f)));
  EXPECT_TRUE(std::isnan(f8e4m3_to_f32(0xff)));
}

TEST(F8E4m3, every_code_survives_the_way_to_f32_and_back) {
  for (int code = 0; code < 256; ++code) {
    const float value = f8e4m3_to_f32(static_cast<F8E4m3>(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_EQ(f32_to_f8e4m3(value) & 0x7f, 0x7f) << code;
      continue;
    }
    EXPECT_EQ(double{value}, (code < 0x80 ? 1 : -1) * f8_value(code & 0x7f)) << code;
    EXPECT_EQ(f32_to_f8e4m3(value), code);
  }
}

TEST(F8E4m3, rounds_to_nearest_even_at_and_around_every_midpoint) {
  for (int code = 0; code < 0x7e; ++code) {
    const auto midpoint = static_cast<float>((f8_value(code) + f8_value(code + 1)) / 2);
    for (float value : {midpoint, std::nextafter(midpoint, 0.0f), std::nextafter(midpoint, 1e9f)}) {
      expect_f8_rounds(value);
      expect_f8_rounds(-value);
      if (HasFatalFailure()) return;
    }
  }
}

// Every bf16 is every exponent f32 has, subnormals included, and more mantissas than e4m3 resolves.
TEST(F8E4m3, rounds_every_bf16_value_to_nearest_even) {
  for (uint32_t code = 0; code < 65536; ++code) {
    if ((code & 0x7fff) > 0x7f80) continue;
    expect_f8_rounds(bf16_to_f32(static_cast<Bf16>(code)));
    if (HasFatalFailure()) return;
  }
}

TEST(F8E4m3, rounds_random_values_to_nearest_even) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> exponent(-14.0f, 10.0f);
  for (int i = 0; i < 100000; ++i) {
    const float magnitude = std::exp2(exponent(random));
    expect_f8_rounds(random() % 2 == 0 ? magnitude : -magnitude);
    if (HasFatalFailure()) return;
  }
}

TEST(F8E4m3, saturates_beyond_its_range_and_keeps_nan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float value : {448.0f, 449.0f, 463.9f, 464.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(f32_to_f8e4m3(value), 0x7e) << value;
    EXPECT_EQ(f32_to_f8e4m3(-value), 0xfe) << value;
  }
  EXPECT_EQ(f32_to_f8e4m3(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
  EXPECT_EQ(f32_to_f8e4m3(from_bits(0xff800001u)) & 0x7f, 0x7f);
}

TEST(Convert, to_f32_gives_the_codecs_values_for_every_type_and_touches_no_more) {
  std::vector<Bf16> bf16(300);
  std::vector<F8E4m3> f8(300);
  for (int i = 0; i < 300; ++i) {
    bf16[i] = static_cast<Bf16>(0x3f00 + i);
    f8[i] = static_cast<F8E4m3>(i % 0x7f);
  }
  for (int64_t count : {0, 1, 7, 64, 299}) {
    std::vector<float> from_bf16(300, -1.0f), from_f8(300, -1.0f), from_f32(300, -1.0f);
    convert_to_f32(DType::kBf16, bf16.data(), count, from_bf16.data());
    convert_to_f32(DType::kF8E4m3, f8.data(), count, from_f8.data());
    convert_to_f32(DType::kF32, from_bf16.data(), count, from_f32.data());
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(from_bf16[i], bf16_to_f32(bf16[i]));
      EXPECT_EQ(from_f8[i], f8e4m3_to_f32(f8[i]));
      EXPECT_EQ(from_f32[i], from_bf16[i]);
    }
    EXPECT_EQ(from_bf16[count], -1.0f);
    EXPECT_EQ(from_f8[count], -1.0f);
    EXPECT_EQ(from_f32[count], -1.0f);
  }
}

TEST(Convert, to_bf16_rounds_each_value_and_touches_no_more) {
  const std::vector<float> source = {0.0f, -0.0f, 1.00390625f, 1.01171875f, 3e38f, -2.5f};
  std::vector<Bf16> target(source.size() + 1, 0xabcd);
  convert_to_bf16(source.data(), std::ssize(source), target.data());
  EXPECT_EQ(target, (std::vector<Bf16>{0x0000, 0x8000, 0x3f80, 0x3f82, 0x7f62, 0xc020, 0xabcd}));
}

TEST(DTypes, have_the_size_and_the_name_of_the_safetensors_format) {
  EXPECT_EQ(dtype_bytes(DType::kF32), 4);
  EXPECT_EQ(dtype_bytes(DType::kBf16), 2);
  EXPECT_EQ(dtype_bytes(DType::kF8E4m3), 1);
  EXPECT_EQ(dtype_bytes(DType::kI32), 4);
  EXPECT_EQ(dtype_bytes(DType::kI64), 8);
  EXPECT_EQ(dtype_bytes(DType::kU8), 1);
  EXPECT_STREQ(dtype_name(DType::kF32), "F32");
  EXPECT_STREQ(dtype_name(DType::kBf16), "BF16");
  EXPECT_STREQ(dtype_name(DType::kF8E4m3), "F8_E4M3");
  EXPECT_STREQ(dtype_name(DType::kI32), "I32");
  EXPECT_STREQ(dtype_name(DType::kI64), "I64");
  EXPECT_STREQ(dtype_name(DType::kU8), "U8");
}

}  // namespace
}  // namespace dhs
