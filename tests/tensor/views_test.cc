#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <type_traits>
#include <vector>

#include "dhisparse/tensor.h"

namespace dhs {
namespace {

std::vector<int> counting(int count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(View, is_plain_data_that_kernels_can_take_by_value) {
  static_assert(std::is_trivially_copyable_v<TensorView<float, 3>>);
  static_assert(std::is_trivially_copyable_v<ChunkedItems>);
  static_assert(std::is_convertible_v<TensorView<int, 2>, TensorView<const int, 2>>);
  static_assert(!std::is_convertible_v<TensorView<const int, 2>, TensorView<int, 2>>);
  const TensorView<int, 2> empty;
  EXPECT_EQ(empty.data, nullptr);
  EXPECT_EQ(empty.sizes[0], 0);
}

TEST(View, a_dense_view_is_row_major_in_every_rank) {
  std::vector<int> data = counting(2 * 3 * 4);
  const auto line = view(data.data(), data.size());
  const auto matrix = view(data.data(), 6, 4);
  const auto cube = view(data.data(), 2, 3, 4);
  int expected = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(cube(i, j, k), expected);
        EXPECT_EQ(matrix(i * 3 + j, k), expected);
        EXPECT_EQ(line(expected), expected);
        ++expected;
      }
    }
  }
  EXPECT_EQ(cube.row(1), data.data() + 12);
  EXPECT_EQ(matrix.row(5), data.data() + 20);
}

TEST(View, strides_reach_a_window_and_a_transpose_of_the_same_data) {
  std::vector<int> data = counting(5 * 6);
  const TensorView<int, 2> window{data.data() + 1 * 6 + 2, {3, 4}, {6, 1}};
  const TensorView<int, 2> transpose{data.data(), {6, 5}, {1, 6}};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(window(i, j), (1 + i) * 6 + 2 + j);
  }
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 5; ++j) EXPECT_EQ(transpose(i, j), j * 6 + i);
  }
  window(2, 3) = -1;
  EXPECT_EQ(data[3 * 6 + 5], -1);
}

TEST(View, becoming_const_keeps_data_sizes_and_strides) {
  std::vector<int> data = counting(12);
  const TensorView<int, 2> strided{data.data(), {2, 3}, {6, 2}};
  const TensorView<const int, 2> read_only = strided;
  EXPECT_EQ(read_only.data, data.data());
  EXPECT_EQ(read_only.sizes[0], 2);
  EXPECT_EQ(read_only.sizes[1], 3);
  EXPECT_EQ(read_only(1, 2), 10);
}

TEST(View, an_axis_of_size_zero_is_legal) {
  const auto empty = view(static_cast<int*>(nullptr), 0, 7);
  EXPECT_EQ(empty.sizes[0], 0);
  EXPECT_EQ(empty.sizes[1], 7);
  EXPECT_EQ(empty.strides[0], 7);
  EXPECT_EQ(empty.strides[1], 1);
}

TEST(ChunkedItems, items_lie_in_their_segments_chunk_in_any_order_of_chunks) {
  constexpr int64_t kChunkBytes = 100;  // three items of 32 bytes and a rest
  std::vector<std::byte> pool(4 * kChunkBytes);
  const std::vector<int64_t> offsets = {3 * kChunkBytes, 0, 2 * kChunkBytes};
  const ChunkedItems items{pool.data(), offsets.data(), 3, 32};
  EXPECT_EQ(items.at(0) - pool.data(), 300);
  EXPECT_EQ(items.at(2) - pool.data(), 364);
  EXPECT_EQ(items.at(3) - pool.data(), 0);
  EXPECT_EQ(items.at(5) - pool.data(), 64);
  EXPECT_EQ(items.at(8) - pool.data(), 264);
  std::set<std::byte*> places;
  for (int item = 0; item < 9; ++item) places.insert(items.at(item));
  EXPECT_EQ(places.size(), 9u);
  for (auto place = places.begin(); std::next(place) != places.end(); ++place) {
    EXPECT_GE(*std::next(place) - *place, 32) << "items overlap";
  }
}

TEST(ChunkedItems, follow_a_chunk_that_moves) {
  std::vector<std::byte> pool(64);
  std::vector<int64_t> offsets = {0};
  const ChunkedItems items{pool.data(), offsets.data(), 2, 16};
  EXPECT_EQ(items.at(1), pool.data() + 16);
  offsets[0] = 32;
  EXPECT_EQ(items.at(1), pool.data() + 48);
}

}  // namespace
}  // namespace dhs
