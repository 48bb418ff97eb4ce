// ldmatrix and mma: layouts as in the PTX manual.
#include "simt/kernels/matrices.cuh"

#include <random>
#include <vector>

#include "simt/launch_fixture.h"

namespace simt {
namespace {

class MatricesTest : public LaunchTest {
 protected:
  using Kernel = void (*)(const uint16_t*, uint32_t*);

  // Element [matrix][row][column] is 100 * matrix + 10 * row + column.
  static std::vector<uint16_t> numbered() {
    std::vector<uint16_t> elements;
    for (int i = 0; i < 4 * 64; ++i) {
      elements.push_back(uint16_t(i / 64 * 100 + i / 8 % 8 * 10 + i % 8));
    }
    return elements;
  }

  // Lane l holds two neighbours of row (or, transposed, column) l / 4.
  void expect_layout(Kernel kernel, int count, bool transposed) {
    const DeviceBuffer<uint16_t> matrices(numbered());
    const DeviceBuffer<uint32_t> words(size_t(32 * count));
    ASSERT_TRUE(succeeded(launch(kernel, 1, 32, 0, nullptr, matrices.data(), words.data())));
    const auto actual = words.download();
    for (int i = 0; i < 32 * count; ++i) {
      const int lane = i / count;
      const int line = lane / 4;
      const int pair = lane % 4 * 2;
      const int first = i % count * 100 + (transposed ? pair * 10 + line : line * 10 + pair);
      const int second = first + (transposed ? 10 : 1);
      EXPECT_EQ(actual[size_t(i)], uint32_t(second << 16 | first)) << lane << ", " << i % count;
    }
  }
};

TEST_F(MatricesTest, four_matrices_come_row_by_row) { expect_layout(matrices::load_x4, 4, false); }

TEST_F(MatricesTest, four_matrices_come_transposed) {
  expect_layout(matrices::load_x4_trans, 4, true);
}

TEST_F(MatricesTest, two_matrices_come_row_by_row) { expect_layout(matrices::load_x2, 2, false); }

TEST_F(MatricesTest, two_matrices_come_transposed) {
  expect_layout(matrices::load_x2_trans, 2, true);
}

TEST_F(MatricesTest, a_bf16_product_of_small_integers_is_exact) {
  std::mt19937 random(3);
  std::vector<__nv_bfloat16> a(16 * 16);
  std::vector<__nv_bfloat16> b(8 * 16);
  for (auto& value : a) value = __float2bfloat16(float(int(random() % 21) - 10));
  for (auto& value : b) value = __float2bfloat16(float(int(random() % 21) - 10));
  const DeviceBuffer<__nv_bfloat16> gmem_a(a);
  const DeviceBuffer<__nv_bfloat16> gmem_b(b);
  const DeviceBuffer<float> gmem_c(16 * 8);
  ASSERT_TRUE(succeeded(launch(matrices::multiply_bf16, 1, 32, 768, nullptr, gmem_a.data(),
                               gmem_b.data(), gmem_c.data())));
  const auto c = gmem_c.download();
  for (size_t i = 0; i < c.size(); ++i) {
    float expected = 0;
    for (size_t k = 0; k < 16; ++k) {
      expected += __bfloat162float(a[i / 8 * 16 + k]) * __bfloat162float(b[i % 8 * 16 + k]);
    }
    EXPECT_EQ(c[i], expected) << i;
  }
}

TEST_F(MatricesTest, an_e4m3_product_of_small_integers_is_exact) {
  std::mt19937 random(4);
  std::vector<float> a(16 * 32);
  std::vector<float> b(8 * 32);
  for (auto& value : a) value = float(int(random() % 17) - 8);
  for (auto& value : b) value = float(int(random() % 17) - 8);
  const auto encoded = [](const std::vector<float>& values) {
    std::vector<uint8_t> bytes;
    for (float value : values) {
      bytes.push_back(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3));
    }
    return bytes;
  };
  const DeviceBuffer<uint8_t> gmem_a(encoded(a));
  const DeviceBuffer<uint8_t> gmem_b(encoded(b));
  const DeviceBuffer<float> gmem_c(16 * 8);
  ASSERT_TRUE(succeeded(launch(matrices::multiply_e4m3, 1, 32, 0, nullptr, gmem_a.data(),
                               gmem_b.data(), gmem_c.data())));
  const auto c = gmem_c.download();
  for (size_t i = 0; i < c.size(); ++i) {
    float expected = 0;
    for (size_t k = 0; k < 32; ++k) expected += a[i / 8 * 32 + k] * b[i % 8 * 32 + k];
    EXPECT_EQ(c[i], expected) << i;
  }
}

}  // namespace
}  // namespace simt
