#include "kernels/kv_row/kv_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

using Bytes = std::vector<std::byte>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

float float_at(const Bytes& bytes, int64_t offset) {
  float value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

uint8_t byte_at(const Bytes& bytes, int64_t offset) {
  return static_cast<uint8_t>(bytes[static_cast<size_t>(offset)]);
}

// The e4m3 code and the scale that a one-group row stores for values[0].
struct Stored {
  uint8_t code;
  float scale;
};
Stored store(std::vector<float> values) {
  const RowLayout layout{RowFormat::kFp8, static_cast<int32_t>(values.size()), 0};
  Bytes row(static_cast<size_t>(layout.row_bytes()));
  encode_row(layout, values.data(), nullptr, row.data());
  return {byte_at(row, 0), float_at(row, layout.scales_offset())};
}

TEST(RowLayout, has_the_published_sizes_and_offsets) {
  const RowLayout fp8{RowFormat::kFp8, 512, 64};
  EXPECT_EQ(fp8.scales_offset(), 512);
  EXPECT_EQ(fp8.rope_offset(), 528);
  EXPECT_EQ(fp8.row_bytes(), 656);
  EXPECT_EQ((RowLayout{RowFormat::kBf16, 512, 64}.row_bytes()), 1152);
  EXPECT_EQ((RowLayout{RowFormat::kF32, 512, 64}.row_bytes()), 2304);
  EXPECT_EQ((RowLayout{RowFormat::kBf16, 512, 0}.row_bytes()), 1024);
}

TEST(RowLayout, rounds_every_row_up_to_16_bytes) {
  for (RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8}) {
    for (int32_t latent_dim : {1, 8, 24, 128, 136, 512}) {
      for (int32_t rope_dim : {0, 2, 8, 64}) {
        const RowLayout layout{format, latent_dim, rope_dim};
        EXPECT_EQ(layout.row_bytes() % 16, 0);
        EXPECT_GE(layout.row_bytes(), layout.rope_offset() + rope_dim * 2);
      }
    }
  }
}

TEST(IndexKeyLayout, has_the_published_page_size) {
  const IndexKeyLayout fp8{RowFormat::kFp8, 128, 64};
  EXPECT_EQ(fp8.scales_offset(), 8192);
  EXPECT_EQ(fp8.page_bytes(), 8448);
  EXPECT_EQ((IndexKeyLayout{RowFormat::kBf16, 128, 64}.page_bytes()), 16384);
  EXPECT_EQ((IndexKeyLayout{RowFormat::kF32, 128, 64}.page_bytes()), 32768);
}

TEST(KvRow, fp8_row_of_656_bytes_matches_a_hand_built_one) {
  const RowLayout layout{RowFormat::kFp8, 512, 64};
  std::vector<float> latent(512, 0.0f);
  std::vector<float> rope(64, 0.0f);
  latent[0] = 448.0f;    // group 0: scale 1, code 0x7e
  latent[1] = -1.0f;     // 0xb8
  latent[2] = 0.0625f;   // 2^-4: exponent field 3, 0x18
  latent[128] = 896.0f;  // group 1: scale 2, 448 again
  latent[129] = 2.0f;    // 2 / 2 = 1: 0x38
  latent[256] = 1.0f;    // group 2: 1 / 448 rounds up to 2^-8; 1 / 2^-8 = 256: 0x78
  rope[0] = 1.0f;        // bf16 0x3f80, little endian
  rope[63] = -2.0f;      // bf16 0xc000
  Bytes expected(656, std::byte{0});
  const auto put = [&](int64_t at, int value) {
    expected[static_cast<size_t>(at)] = static_cast<std::byte>(value);
  };
  put(0, 0x7e), put(1, 0xb8), put(2, 0x18), put(128, 0x7e), put(129, 0x38), put(256, 0x78);
  const float scales[4] = {1.0f, 2.0f, 0x1p-8f, 0x1p-22f};  // the last group is all zero
  std::memcpy(expected.data() + 512, scales, sizeof(scales));
  put(528, 0x80), put(529, 0x3f), put(654, 0x00), put(655, 0xc0);

  Bytes row(656, std::byte{0xee});
  encode_row(layout, latent.data(), rope.data(), row.data());
  EXPECT_EQ(row, expected);

  std::vector<float> latent_back(512), rope_back(64);
  decode_row(layout, row.data(), latent_back.data(), rope_back.data());
  EXPECT_EQ(latent_back, latent);
  EXPECT_EQ(rope_back, rope);
}

TEST(KvRow, bf16_row_is_latent_then_rope_in_bf16) {
  const RowLayout layout{RowFormat::kBf16, 8, 8};
  const std::vector<float> latent = {1, -1, 0, 2, 0.5, 3, 1.00390625f, 1.01171875f};
  const std::vector<float> rope = {4, 0, 0, 0, 0, 0, 0, -4};
  const uint16_t expected[16] = {0x3f80, 0xbf80, 0, 0x4000, 0x3f00, 0x4040, 0x3f80, 0x3f82,
                                 0x4080, 0,      0, 0,      0,      0,      0,      0xc080};
  Bytes row(32);
  encode_row(layout, latent.data(), rope.data(), row.data());
  EXPECT_EQ(std::memcmp(row.data(), expected, sizeof(expected)), 0);
}

TEST(KvRow, f32_row_keeps_every_bit_and_zeroes_its_padding) {
  const RowLayout layout{RowFormat::kF32, 5, 2};
  const std::vector<float> latent = random_values(5, 1);
  const std::vector<float> rope = random_values(2, 2);
  ASSERT_EQ(layout.row_bytes(), 32);
  Bytes row(32, std::byte{0xee});
  encode_row(layout, latent.data(), rope.data(), row.data());
  std::vector<float> latent_back(5), rope_back(2);
  decode_row(layout, row.data(), latent_back.data(), rope_back.data());
  EXPECT_EQ(latent_back, latent);
  EXPECT_EQ(rope_back, rope);
  EXPECT_EQ(float_at(row, 28), 0.0f);
}

TEST(KvRow, fp8_rows_work_at_every_16_byte_phase) {
  const RowLayout layout{RowFormat::kFp8, 512, 64};
  const std::vector<float> latent = random_values(512, 3);
  const std::vector<float> rope = random_values(64, 4);
  Bytes first(656);
  encode_row(layout, latent.data(), rope.data(), first.data());
  for (int phase = 0; phase < 128; phase += 16) {
    alignas(128) std::byte memory[656 + 128];
    encode_row(layout, latent.data(), rope.data(), memory + phase);
    EXPECT_EQ(std::memcmp(memory + phase, first.data(), 656), 0) << phase;
  }
}

TEST(KvRow, fp8_error_is_at_most_half_a_step) {
  const RowLayout layout{RowFormat::kFp8, 384, 8};
  const std::vector<float> latent = random_values(384, 5);
  const std::vector<float> rope = random_values(8, 6);
  Bytes row(static_cast<size_t>(layout.row_bytes()));
  encode_row(layout, latent.data(), rope.data(), row.data());
  std::vector<float> latent_back(384), rope_back(8);
  decode_row(layout, row.data(), latent_back.data(), rope_back.data());
  for (size_t i = 0; i < latent.size(); ++i) {
    const float scale = float_at(row, layout.scales_offset() + static_cast<int64_t>(i) / 128 * 4);
    const float bound = std::max(std::fabs(latent[i]) / 16, scale * 0x1p-10f);
    EXPECT_LE(std::fabs(latent_back[i] - latent[i]), bound) << i;
  }
}

TEST(KvRowFp8, all_zero_vector_gets_the_smallest_scale_and_zero_codes) {
  const Stored stored = store(std::vector<float>(128, 0.0f));
  EXPECT_EQ(stored.code, 0);
  EXPECT_EQ(stored.scale, 0x1p-22f);  // 1e-4 / 448 = 2.2e-7, rounded up
}

TEST(KvRowFp8, scale_is_rounded_up_to_a_power_of_two) {
  EXPECT_EQ(store({448.0f}).scale, 1.0f);  // exact: not doubled
  EXPECT_EQ(store({448.1f}).scale, 2.0f);
  EXPECT_EQ(store({224.0f}).scale, 0.5f);
  EXPECT_EQ(store({1.0f}).scale, 0x1p-8f);
  EXPECT_EQ(store({-1.0f}).scale, 0x1p-8f);
}

TEST(KvRowFp8, what_is_beyond_448_scales_saturates) {
  // Finite values never are: the scale is rounded up. Infinities take the scale of the largest
  // finite value instead of an infinite one.
  EXPECT_EQ(store({std::nextafter(448.0f, 1000.0f)}).scale, 2.0f);
  EXPECT_EQ(store({kInfinity, 1.0f}).code, 0x7e);
  EXPECT_EQ(store({-kInfinity, 1.0f}).code, 0xfe);
  EXPECT_EQ(store({kInfinity, 1.0f}).scale, 0x1p120f);
}

TEST(KvRowFp8, ties_round_to_even) {
  // Scale 1 through a 448 in the group. Around 16 the step is 2: 17 lies between 16 and 18.
  EXPECT_EQ(store({17.0f, 448.0f}).code, 0x58);   // 16, even mantissa
  EXPECT_EQ(store({19.0f, 448.0f}).code, 0x5a);   // 20, even mantissa
  EXPECT_EQ(store({17.01f, 448.0f}).code, 0x59);  // 18
  // Below 2^-6 the step is 2^-9.
  EXPECT_EQ(store({0x1p-10f, 448.0f}).code, 0x00);
  EXPECT_EQ(store({0x3p-10f, 448.0f}).code, 0x02);
  EXPECT_EQ(store({-0x1p-9f, 448.0f}).code, 0x81);
  EXPECT_EQ(store({0xfp-10f, 448.0f}).code, 0x08);  // up into the normal range
}

TEST(KvRowFp8, a_nan_spoils_only_itself) {
  const Stored stored = store({std::nanf(""), 448.0f});
  EXPECT_EQ(stored.code & 0x7f, 0x7f);
  EXPECT_EQ(stored.scale, 1.0f);
}

TEST(KvRowFp8, codes_agree_with_the_codec_over_the_whole_range) {
  std::vector<float> values = {448.0f};  // scale 1
  for (float x = 0x1p-14f; x < 448.0f; x *= 1.0173f) {
    values.push_back(x);
    values.push_back(-x);
  }
  for (int code = 0; code < 0x7e; ++code) {  // every value, and every midpoint
    const float low = f8e4m3_to_f32(static_cast<F8E4m3>(code));
    const float high = f8e4m3_to_f32(static_cast<F8E4m3>(code + 1));
    values.insert(values.end(), {low, -low, (low + high) / 2, -(low + high) / 2});
  }
  for (float value : values) {
    EXPECT_EQ(store({value, 448.0f}).code, f32_to_f8e4m3(value)) << value;
  }
}

TEST(IndexKey, page_matches_a_hand_built_one) {
  const IndexKeyLayout layout{RowFormat::kFp8, 4, 4};
  ASSERT_EQ(layout.page_bytes(), 32);
  Bytes page(32, std::byte{0});
  encode_index_key(layout, std::vector<float>{448, 1, -1, 0}.data(), 2, page.data());
  Bytes expected(32, std::byte{0});
  const uint8_t codes[4] = {0x7e, 0x38, 0xb8, 0x00};
  std::memcpy(expected.data() + 8, codes, sizeof(codes));
  const float scale = 1.0f;
  std::memcpy(expected.data() + 16 + 8, &scale, sizeof(scale));
  EXPECT_EQ(page, expected);
}

// Whether byte `b` of a page stores the key at `offset` or its scale.
bool stores_key(const IndexKeyLayout& layout, int offset, int64_t b) {
  const int64_t key_at = offset * layout.key_bytes();
  if (b >= key_at && b < key_at + layout.key_bytes()) return true;
  const int64_t scale_at = layout.scales_offset() + offset * 4;
  return layout.format == RowFormat::kFp8 && b >= scale_at && b < scale_at + 4;
}

TEST(IndexKey, writing_one_key_changes_only_its_bytes_and_its_scale) {
  for (RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8}) {
    const IndexKeyLayout layout{format, 128, 64};
    const std::vector<float> key = random_values(128, 7);
    for (int offset : {0, 17, 63}) {
      Bytes page(static_cast<size_t>(layout.page_bytes()), std::byte{0xee});
      encode_index_key(layout, key.data(), offset, page.data());
      for (int64_t b = 0; b < layout.page_bytes(); ++b) {
        if (stores_key(layout, offset, b)) continue;
        ASSERT_EQ(byte_at(page, b), 0xee) << b;
      }
    }
  }
}

TEST(IndexKey, comes_back_from_any_offset) {
  for (RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8}) {
    const IndexKeyLayout layout{format, 64, 64};
    Bytes page(static_cast<size_t>(layout.page_bytes()));
    for (int k = 0; k < 64; ++k) {
      encode_index_key(layout, random_values(64, static_cast<unsigned>(k)).data(), k, page.data());
    }
    const float tolerance = format == RowFormat::kF32    ? 0.0f
                            : format == RowFormat::kBf16 ? 0x1p-8f
                                                         : 0x1p-4f;
    for (int k = 0; k < 64; ++k) {
      const std::vector<float> key = random_values(64, static_cast<unsigned>(k));
      std::vector<float> back(64);
      decode_index_key(layout, page.data(), k, back.data());
      for (size_t d = 0; d < key.size(); ++d) {
        EXPECT_NEAR(back[d], key[d], tolerance * (std::fabs(key[d]) + 0.01f));
      }
    }
  }
}

// ---- Many rows at once: the codecs of every backend --------------------------------------------

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// launch_encode_rows must give encode_row's bytes for these latents and ropes.
void expect_same_encoding(const RowLayout& layout, const std::vector<float>& latents,
                          const std::vector<float>& ropes) {
  const int64_t num_rows = static_cast<int64_t>(latents.size()) / layout.latent_dim;
  const int64_t row_bytes = layout.row_bytes();
  const test::DeviceArray<float> device_latents(latents), device_ropes(ropes);
  const test::DeviceArray<std::byte> rows(static_cast<size_t>(num_rows * row_bytes),
                                          std::byte{0xee});
  launch_encode_rows(
      {.layout = layout,
       .latents = view<const float>(device_latents.data(), num_rows, layout.latent_dim),
       .ropes = view<const float>(device_ropes.data(), num_rows, layout.rope_dim),
       .rows = view(rows.data(), num_rows, row_bytes)},
      test::stream());
  const Bytes actual = rows.download();
  for (int64_t i = 0; i < num_rows; ++i) {
    Bytes expected(static_cast<size_t>(row_bytes), std::byte{0xdd});
    encode_row(layout, latents.data() + i * layout.latent_dim, ropes.data() + i * layout.rope_dim,
               expected.data());
    for (int64_t b = 0; b < row_bytes; ++b) {
      ASSERT_EQ(byte_at(actual, i * row_bytes + b), byte_at(expected, b))
          << "row " << i << ", byte " << b << " of format " << int(layout.format);
    }
  }
}

// f32 patterns from all over the range, infinities and NaNs of both signs among them.
std::vector<float> patterns(size_t count) {
  std::vector<float> values = {kInfinity,  -kInfinity, std::nanf(""),        -std::nanf(""),
                               0.0f,       -0.0f,      float_of(0x7f800001), float_of(0xffbfffff),
                               float_of(1)};
  for (uint32_t bits = 0; values.size() < count; bits += 0x3f9a7) values.push_back(float_of(bits));
  return values;
}

TEST(EncodeRows, rounds_every_kind_of_value_as_encode_row_does) {
  constexpr size_t kNumRows = 260;
  const std::vector<float> ropes = patterns(kNumRows * 64);
  for (RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8}) {
    expect_same_encoding({format, 64, 64}, patterns(kNumRows * 64), ropes);
  }
}

TEST(EncodeRows, rounds_all_fp8_ties_and_their_neighbours_as_encode_row_does) {
  // Scale 1 through the 448 of each row. Values, midpoints and what lies next to them.
  std::vector<float> values;
  for (int code = 0; code < 0x7e; ++code) {
    const float low = f8e4m3_to_f32(static_cast<F8E4m3>(code));
    const float middle = (low + f8e4m3_to_f32(static_cast<F8E4m3>(code + 1))) / 2;
    for (float value :
         {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 500.0f)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  values.push_back(std::nanf(""));
  values.push_back(-std::nanf(""));
  constexpr size_t kLatents = 128;
  std::vector<float> latents;
  for (float value : values) {
    if (latents.size() % kLatents == 0) latents.push_back(448.0f);
    latents.push_back(value);
  }
  latents.resize((latents.size() + kLatents - 1) / kLatents * kLatents, 1.0f);
  const std::vector<float> ropes(latents.size() / kLatents * 2, 1.0f);
  expect_same_encoding({RowFormat::kFp8, kLatents, 2}, latents, ropes);
}

TEST(EncodeRows, picks_the_scale_of_every_magnitude_as_encode_row_does) {
  std::vector<float> latents;
  const auto add_row = [&](float largest) {
    latents.insert(latents.end(), {largest / 3, -largest, largest / 1000, std::nanf("")});
  };
  for (int exponent = -30; exponent <= 119; ++exponent) {
    const float largest = std::ldexp(448.0f, exponent);
    add_row(std::nextafter(largest, 0.0f));
    add_row(largest);
    add_row(std::nextafter(largest, kInfinity));
  }
  for (float largest : {1e-4f, 0.0f, 1e-45f, std::numeric_limits<float>::max(), kInfinity}) {
    add_row(largest);
  }
  expect_same_encoding({RowFormat::kFp8, 4, 2}, latents, std::vector<float>(latents.size(), 1.0f));
}

TEST(EncodeRows, encodes_rows_of_any_shape) {
  for (RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8}) {
    for (int32_t latent_dim : {1, 5, 130, 512, 700}) {
      for (int32_t rope_dim : {0, 2, 64}) {
        expect_same_encoding({format, latent_dim, rope_dim}, random_values(3 * latent_dim, 8),
                             random_values(3 * rope_dim, 9));
      }
    }
  }
}

// launch_decode_rows must give decode_row's bits, and its latents rounded to bf16.
void expect_same_decoding(const RowLayout& layout, const Bytes& rows) {
  const int64_t row_bytes = layout.row_bytes();
  const int64_t num_rows = static_cast<int64_t>(rows.size()) / row_bytes;
  const auto num_latents = static_cast<size_t>(num_rows * layout.latent_dim);
  const auto num_ropes = static_cast<size_t>(num_rows * layout.rope_dim);
  const test::DeviceArray<std::byte> device_rows(rows);
  const test::DeviceArray<float> latents(num_latents, -7.0f), ropes(num_ropes, -7.0f);
  const test::DeviceArray<Bf16> latents_bf16(num_latents, Bf16{7});
  launch_decode_rows({.layout = layout,
                      .rows = view<const std::byte>(device_rows.data(), num_rows, row_bytes),
                      .latents = view(latents.data(), num_rows, layout.latent_dim),
                      .ropes = view(ropes.data(), num_rows, layout.rope_dim),
                      .latents_bf16 = view(latents_bf16.data(), num_rows, layout.latent_dim)},
                     test::stream());
  std::vector<float> expected_latents(num_latents), expected_ropes(num_ropes);
  std::vector<Bf16> expected_bf16(num_latents);
  for (int64_t i = 0; i < num_rows; ++i) {
    decode_row(layout, rows.data() + i * row_bytes, &expected_latents[i * layout.latent_dim],
               expected_ropes.data() + i * layout.rope_dim);
  }
  convert_to_bf16(expected_latents.data(), static_cast<int64_t>(num_latents), expected_bf16.data());
  const auto bits = [](const std::vector<float>& values) {
    std::vector<uint32_t> copies(values.size());
    for (size_t i = 0; i < values.size(); ++i) std::memcpy(&copies[i], &values[i], 4);
    return copies;
  };
  EXPECT_EQ(bits(latents.download()), bits(expected_latents));
  EXPECT_EQ(bits(ropes.download()), bits(expected_ropes));
  EXPECT_EQ(latents_bf16.download(), expected_bf16);
}

TEST(DecodeRows, decodes_all_256_codes_at_every_scale_bit_for_bit) {
  const RowLayout layout{RowFormat::kFp8, 256, 8};  // two groups: two scales per row
  Bytes rows;
  for (int exponent = -22; exponent <= 120; exponent += 2) {
    Bytes row(static_cast<size_t>(layout.row_bytes()), std::byte{0});
    for (size_t code = 0; code < 256; ++code) row[code * 173 % 256] = static_cast<std::byte>(code);
    const float scales[2] = {std::ldexp(1.0f, exponent),
                             std::ldexp(1.0f, std::min(exponent + 1, 120))};
    std::memcpy(row.data() + layout.scales_offset(), scales, sizeof(scales));
    rows.insert(rows.end(), row.begin(), row.end());
    std::reverse(row.begin(), row.begin() + 256);  // every code under both scales
    rows.insert(rows.end(), row.begin(), row.end());
  }
  expect_same_decoding(layout, rows);
}

Bytes encoded_patterns(const RowLayout& layout, int64_t num_rows) {
  const std::vector<float> latents = patterns(static_cast<size_t>(num_rows * layout.latent_dim));
  const std::vector<float> ropes = patterns(static_cast<size_t>(num_rows * layout.rope_dim));
  Bytes rows(static_cast<size_t>(num_rows * layout.row_bytes()));
  for (int64_t i = 0; i < num_rows; ++i) {
    encode_row(layout, latents.data() + i * layout.latent_dim, ropes.data() + i * layout.rope_dim,
               rows.data() + i * layout.row_bytes());
  }
  return rows;
}

TEST(DecodeRows, decodes_every_format_and_shape_as_decode_row_does) {
  for (RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8}) {
    for (int32_t latent_dim : {1, 6, 132, 512}) {
      for (int32_t rope_dim : {0, 3, 64}) {
        const RowLayout layout{format, latent_dim, rope_dim};
        expect_same_decoding(layout, encoded_patterns(layout, 2));
      }
    }
  }
}

}  // namespace
}  // namespace dhs
