#include "kernels/take_rows/take_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

using test::DeviceArray;

TEST(TakeRows, copies_the_named_rows_in_order_and_zeros_for_negative_ones) {
  constexpr int64_t kRows = 9;
  const std::vector<int32_t> rows = {8, -1, 0, 3, 3, -5};
  const auto num_rows = static_cast<int64_t>(rows.size());
  for (int64_t width : {1, 31, 256, 1024, 1500}) {
    const int64_t x_stride = width + 5, out_stride = width + 2;
    std::vector<float> x;
    for (int64_t i = 0; i < kRows * x_stride; ++i) x.push_back(static_cast<float>(i) + 1.0f);
    const DeviceArray<float> device_x(x), out(static_cast<size_t>(num_rows * out_stride), -7.0f);
    const DeviceArray<int32_t> device_rows(rows);
    launch_take_rows({.x = {device_x.data(), {kRows, width}, {x_stride, 1}},
                      .rows = view<const int32_t>(device_rows.data(), num_rows),
                      .out = {out.data(), {num_rows, width}, {out_stride, 1}}},
                     test::stream());
    const std::vector<float> taken = out.download();
    for (int64_t i = 0; i < num_rows * out_stride; ++i) {
      const int64_t column = i % out_stride;
      const int32_t row = rows[static_cast<size_t>(i / out_stride)];
      const float expected = column >= width ? -7.0f
                             : row < 0       ? 0.0f
                                             : x[static_cast<size_t>(row * x_stride + column)];
      ASSERT_EQ(taken[static_cast<size_t>(i)], expected) << i << " of width " << width;
    }
  }
}

TEST(TakeRows, copies_all_rows_in_order_without_a_list_of_them) {
  constexpr int64_t kRows = 5, kWidth = 37, kStride = 40, kOutStride = 38;
  std::vector<float> x;
  for (int64_t i = 0; i < kRows * kStride; ++i) x.push_back(static_cast<float>(i) + 1.0f);
  const DeviceArray<float> device_x(x), out(kRows * kOutStride, -7.0f);
  launch_take_rows({.x = {device_x.data(), {kRows, kWidth}, {kStride, 1}},
                    .out = {out.data(), {kRows, kWidth}, {kOutStride, 1}}},
                   test::stream());
  const std::vector<float> taken = out.download();
  for (int64_t i = 0; i < kRows * kOutStride; ++i) {
    const int64_t row = i / kOutStride, column = i % kOutStride;
    ASSERT_EQ(taken[i], column < kWidth ? x[row * kStride + column] : -7.0f) << i;
  }
}

TEST(TakeRows, takes_no_rows_as_nothing_to_do) {
  launch_take_rows({.x = view<const float>(nullptr, 0, 8),
                    .rows = view<const int32_t>(nullptr, 0),
                    .out = view<float>(nullptr, 0, 8)},
                   test::stream());
}

}  // namespace
}  // namespace dhs
