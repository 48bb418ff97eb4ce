#include "kernels/add/add.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/test_memory.h"

namespace dhs {
namespace {

TEST(Add, adds_every_element_of_strided_rows_and_touches_no_other) {
  constexpr int64_t kRows = 700, kWidth = 130, kStride = 144;
  std::vector<float> x(kRows * kStride, 100.0f), out(kRows * kStride, -7.0f);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kWidth; ++i) {
      x[row * kStride + i] = static_cast<float>(row);
      out[row * kStride + i] = static_cast<float>(i);
    }
  }
  const test::DeviceArray<float> device_x(x), device_out(out);
  launch_add({.x = {device_x.data(), {kRows, kWidth}, {kStride, 1}},
              .out = {device_out.data(), {kRows, kWidth}, {kStride, 1}}},
             test::stream());
  out = device_out.download();
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kStride; ++i) {
      const float expected = i < kWidth ? static_cast<float>(row + i) : -7.0f;
      ASSERT_EQ(out[row * kStride + i], expected) << row << ", " << i;
    }
  }
}

TEST(Add, takes_no_rows_as_nothing_to_do) {
  launch_add({.x = view<const float>(nullptr, 0, 8), .out = view<float>(nullptr, 0, 8)},
             test::stream());
}

}  // namespace
}  // namespace dhs
