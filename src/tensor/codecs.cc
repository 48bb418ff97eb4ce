#include <algorithm>
#include <array>
#include <cmath>

#include "dhisparse/tensor.h"

namespace dhs {
namespace {

constexpr int kF8ExponentBias = 7;
constexpr F8E4m3 kF8Nan = 0x7f;
constexpr float kF8Max = 448.0f;

float decode_f8(F8E4m3 bits) {
  const int exponent = (bits >> 3) & 0xf;
  const int mantissa = bits & 0x7;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 0xf && mantissa == 0x7) return std::nanf("");
  if (exponent == 0)
    return sign * std::ldexp(static_cast<float>(mantissa), 1 - kF8ExponentBias - 3);
  return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - kF8ExponentBias - 3);
}

std::array<float, 256> make_f8_table() {
  std::array<float, 256> table{};
  for (int i = 0; i < 256; ++i) table[i] = decode_f8(static_cast<F8E4m3>(i));
  return table;
}

const std::array<float, 256> kF8Table = make_f8_table();

}  // namespace

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBf16:
      return "BF16";
    case DType::kF8E4m3:
      return "F8_E4M3";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

float f8e4m3_to_f32(F8E4m3 bits) { return kF8Table[bits]; }

F8E4m3 f32_to_f8e4m3(float value) {
  const F8E4m3 sign = std::signbit(value) ? 0x80 : 0x00;
  if (std::isnan(value)) return sign | kF8Nan;
  const float magnitude = std::fabs(value);
  if (magnitude >= kF8Max) return sign | 0x7e;
  // The spacing of representable values around `magnitude`; 2^-9 below the smallest normal 2^-6.
  int exponent;
  std::frexp(magnitude, &exponent);
  const int step_exponent = std::max(exponent - 1, 1 - kF8ExponentBias) - 3;
  const float steps = std::nearbyint(std::ldexp(magnitude, -step_exponent));
  const float rounded = std::ldexp(steps, step_exponent);
  if (rounded >= kF8Max) return sign | 0x7e;
  if (rounded < std::ldexp(1.0f, 1 - kF8ExponentBias)) {
    return sign | static_cast<F8E4m3>(std::ldexp(rounded, kF8ExponentBias - 1 + 3));
  }
  std::frexp(rounded, &exponent);
  const int mantissa = static_cast<int>(std::ldexp(rounded, 3 - (exponent - 1))) - 8;
  return sign | static_cast<F8E4m3>(((exponent - 1 + kF8ExponentBias) << 3) | mantissa);
}

void convert_to_f32(DType dtype, const void* source, int64_t count, float* target) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kBf16:
      for (int64_t i = 0; i < count; ++i) {
        target[i] = bf16_to_f32(static_cast<const Bf16*>(source)[i]);
      }
      return;
    case DType::kF8E4m3:
      for (int64_t i = 0; i < count; ++i) {
        target[i] = f8e4m3_to_f32(static_cast<const F8E4m3*>(source)[i]);
      }
      return;
    default:
      return;
  }
}

void convert_to_bf16(const float* source, int64_t count, Bf16* target) {
  for (int64_t i = 0; i < count; ++i) target[i] = f32_to_bf16(source[i]);
}

}  // namespace dhs
