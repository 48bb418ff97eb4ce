#include "kernels/kv_row/kv_row.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

namespace dhs {
namespace {

constexpr float kF8Max = 448.0f;
constexpr float kMinAmax = 1e-4f;

// The e4m3 code of a value already within +-448, NaN excepted. Same bits as f32_to_f8e4m3, without
// its branches on the exponent: the prefill of one chunk encodes millions of values.
uint8_t encode_f8(float value) {
  constexpr uint32_t kNan = 0x7f800000u;
  constexpr uint32_t kMinNormal = (127u - 6u) << 23;  // 2^-6 as f32 bits
  constexpr float kSubnormalMagic = 16384.0f;         // its last mantissa bit is 2^-9
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  const uint32_t normal = (rounded >> 20) - ((127u - 7u) << 3);
  const float shifted = std::bit_cast<float>(magnitude) + kSubnormalMagic;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) & 0xffu;
  const uint32_t finite = magnitude >= kMinNormal ? normal : subnormal;
  return static_cast<uint8_t>(sign | (magnitude > kNan ? 0x7fu : finite));
}

// max(amax, 1e-4) / 448, rounded up to a power of two. NaNs do not take part; infinities count as
// the largest finite value, so that they saturate instead of turning the vector into NaNs.
float f8_scale(const float* values, int64_t count) {
  float amax = kMinAmax;
  for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(values[i]));
  int exponent;
  const float fraction = std::frexp(std::min(amax, FLT_MAX) / kF8Max, &exponent);
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

// Encodes `count` values that share a scale; returns the scale.
float encode_f8_group(const float* values, int64_t count, std::byte* target) {
  const float scale = f8_scale(values, count);
  const float inverse = 1.0f / scale;  // exact: both are powers of two
  auto* codes = reinterpret_cast<uint8_t*>(target);
  for (int64_t i = 0; i < count; ++i) {
    const float scaled = values[i] * inverse;
    codes[i] = encode_f8(scaled > kF8Max ? kF8Max : scaled < -kF8Max ? -kF8Max : scaled);
  }
  return scale;
}

void decode_f8_group(const std::byte* source, int64_t count, float scale, float* values) {
  convert_to_f32(DType::kF8E4m3, source, count, values);
  for (int64_t i = 0; i < count; ++i) values[i] *= scale;
}

void encode_plain(RowFormat format, const float* values, int64_t count, std::byte* target) {
  if (count == 0) return;  // a model without rope may pass null
  if (format == RowFormat::kF32) {
    std::memcpy(target, values, static_cast<size_t>(count) * sizeof(float));
  } else {
    convert_to_bf16(values, count, reinterpret_cast<Bf16*>(target));
  }
}

void decode_plain(RowFormat format, const std::byte* source, int64_t count, float* values) {
  if (count == 0) return;
  convert_to_f32(format == RowFormat::kF32 ? DType::kF32 : DType::kBf16, source, count, values);
}

}  // namespace

void encode_row(const RowLayout& layout, const float* latent, const float* rope, std::byte* row) {
  std::byte* const rope_bytes = row + layout.rope_offset();
  if (layout.format != RowFormat::kFp8) {
    encode_plain(layout.format, latent, layout.latent_dim, row);
    encode_plain(layout.format, rope, layout.rope_dim, rope_bytes);
  } else {
    std::memset(row + layout.latent_dim, 0,
                static_cast<size_t>(layout.rope_offset() - layout.latent_dim));
    for (int64_t group = 0; group < layout.num_scales(); ++group) {
      const int64_t first = group * kRowScaleGroup;
      const int64_t count = std::min<int64_t>(kRowScaleGroup, layout.latent_dim - first);
      const float scale = encode_f8_group(latent + first, count, row + first);
      std::memcpy(row + layout.scales_offset() + group * sizeof(float), &scale, sizeof(scale));
    }
    encode_plain(RowFormat::kBf16, rope, layout.rope_dim, rope_bytes);
  }
  const int64_t rope_end =
      layout.rope_offset() + layout.rope_dim * (layout.format == RowFormat::kF32 ? 4 : 2);
  std::memset(row + rope_end, 0, static_cast<size_t>(layout.row_bytes() - rope_end));
}

void decode_row(const RowLayout& layout, const std::byte* row, float* latent, float* rope) {
  const std::byte* const rope_bytes = row + layout.rope_offset();
  if (layout.format != RowFormat::kFp8) {
    decode_plain(layout.format, row, layout.latent_dim, latent);
    decode_plain(layout.format, rope_bytes, layout.rope_dim, rope);
    return;
  }
  for (int64_t group = 0; group < layout.num_scales(); ++group) {
    const int64_t first = group * kRowScaleGroup;
    float scale;
    std::memcpy(&scale, row + layout.scales_offset() + group * sizeof(float), sizeof(scale));
    decode_f8_group(row + first, std::min<int64_t>(kRowScaleGroup, layout.latent_dim - first),
                    scale, latent + first);
  }
  decode_plain(RowFormat::kBf16, rope_bytes, layout.rope_dim, rope);
}

void encode_index_key(const IndexKeyLayout& layout, const float* key, int offset, std::byte* page) {
  std::byte* const bytes = page + offset * layout.key_bytes();
  if (layout.format != RowFormat::kFp8) {
    encode_plain(layout.format, key, layout.index_dim, bytes);
    return;
  }
  const float scale = encode_f8_group(key, layout.index_dim, bytes);
  std::memcpy(page + layout.scales_offset() + offset * sizeof(float), &scale, sizeof(scale));
}

void decode_index_key(const IndexKeyLayout& layout, const std::byte* page, int offset, float* key) {
  const std::byte* const bytes = page + offset * layout.key_bytes();
  if (layout.format != RowFormat::kFp8) {
    decode_plain(layout.format, bytes, layout.index_dim, key);
    return;
  }
  float scale;
  std::memcpy(&scale, page + layout.scales_offset() + offset * sizeof(float), sizeof(scale));
  decode_f8_group(bytes, layout.index_dim, scale, key);
}

}  // namespace dhs
