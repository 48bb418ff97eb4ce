#include "kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;

constexpr int64_t kVocab = 40;

float table_value(int64_t token, int64_t column) {
  return static_cast<float>(token * 5 + column % 8) * (column % 2 == 0 ? 1.0f : -1.0f);
}

// out, of rows that are kStride apart, for tokens at positions; untouched elements stay -7.
template <class T, class Convert>
std::vector<float> embed(DType dtype, int64_t width, const std::vector<int32_t>& tokens,
                         const std::vector<int32_t>& positions, Convert convert) {
  std::vector<T> table;
  for (int64_t i = 0; i < kVocab * width; ++i) {
    table.push_back(convert(table_value(i / width, i % width)));
  }
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  const int64_t stride = width + 3;
  const DeviceArray<T> device_table(table);
  const DeviceArray<int32_t> device_tokens(tokens), device_positions(positions);
  const DeviceArray<float> out(static_cast<size_t>(num_tokens * stride), -7.0f);
  launch_embedding({.dtype = dtype,
                    .table = device_table.data(),
                    .tokens = view<const int32_t>(device_tokens.data(), num_tokens),
                    .positions = view<const int32_t>(device_positions.data(), num_tokens),
                    .out = {out.data(), {num_tokens, width}, {stride, 1}}},
                   test::stream());
  return out.download();
}

void expect_rows(const std::vector<float>& out, int64_t width, const std::vector<int32_t>& tokens,
                 const std::vector<int32_t>& positions) {
  const int64_t stride = width + 3;
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (int64_t column = 0; column < stride; ++column) {
      const float expected = column >= width    ? -7.0f
                             : positions[i] < 0 ? 0.0f
                                                : table_value(tokens[i], column);
      ASSERT_EQ(out[i * static_cast<size_t>(stride) + static_cast<size_t>(column)], expected)
          << "row " << i << ", column " << column << " of " << width;
    }
  }
}

TEST(Embedding, gives_the_tables_rows_of_both_types) {
  const std::vector<int32_t> tokens = {0, 39, 7, 7, 20}, positions = {0, 5, 6, 1000000, 2};
  for (int64_t width : {1, 8, 130, 1024, 1100}) {
    expect_rows(embed<float>(DType::kF32, width, tokens, positions, [](float x) { return x; }),
                width, tokens, positions);
    expect_rows(embed<Bf16>(DType::kBf16, width, tokens, positions, f32_to_bf16), width, tokens,
                positions);
  }
}

TEST(Embedding, gives_zeros_for_padding_whatever_its_token_is) {
  const std::vector<int32_t> tokens = {3, -1, 4, 2000000000}, positions = {0, -1, 1, -1};
  expect_rows(embed<Bf16>(DType::kBf16, 72, tokens, positions, f32_to_bf16), 72, tokens, positions);
  expect_rows(embed<float>(DType::kF32, 72, tokens, positions, [](float x) { return x; }), 72,
              tokens, positions);
}

TEST(Embedding, keeps_infinities_nans_and_subnormals) {
  const std::vector<float> special = {std::numeric_limits<float>::infinity(), std::nanf(""), 1e-40f,
                                      -0.0f};
  const std::vector<int32_t> tokens = {0}, positions = {0};
  size_t next = 0;
  const std::vector<float> out =
      embed<float>(DType::kF32, 4, tokens, positions, [&](float) { return special[next++ % 4]; });
  EXPECT_EQ(std::memcmp(out.data(), special.data(), 16), 0);
}

TEST(Embedding, takes_no_tokens_as_nothing_to_do) {
  launch_embedding({.tokens = view<const int32_t>(nullptr, 0),
                    .positions = view<const int32_t>(nullptr, 0),
                    .out = view<float>(nullptr, 0, 8)},
                   test::stream());
}

}  // namespace
}  // namespace dhs
