#include "model/packed_layer.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

constexpr int64_t kRows = 8, kColumns = 12;

// Packs for the device under test, and one matrix to pack.
class Packing : public testing::Test {
 protected:
  Packing() : values_(kRows * kColumns, 0.25f) {
    matrix_.name = "weight";
    matrix_.data = reinterpret_cast<const std::byte*>(values_.data());
    matrix_.rows = kRows;
    matrix_.columns = kColumns;
    auto device = open_device({.backend = test::kOnCuda ? BackendKind::kCuda : BackendKind::kCpu});
    EXPECT_TRUE(device.ok()) << device.status();
    if (!device.ok()) return;
    device_ = *std::move(device);
    auto uploader = WeightUploader::create(*device_);
    EXPECT_TRUE(uploader.ok()) << uploader.status();
    if (uploader.ok()) uploader_ = std::make_unique<WeightUploader>(*std::move(uploader));
  }

  const std::vector<float> values_;
  WeightMatrix matrix_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<WeightUploader> uploader_;
};

TEST_F(Packing, asks_the_library_for_single_matrices_that_are_not_f32) {
  ASSERT_NE(uploader_, nullptr);
  Packer packer(*uploader_, GemmPrecision::kBf16, GemmProvider::kLibrary);
  EXPECT_TRUE(packed_shape(*packer.stack({all_rows(matrix_)})).prefers_library);
  EXPECT_TRUE(packed_shape(*packer.columns(matrix_, {.rank = 0, .size = 2})).prefers_library);
  EXPECT_FALSE(packed_shape(*packer.stack_f32({all_rows(matrix_)})).prefers_library);
  EXPECT_FALSE(packed_shape(*packer.make(3, kRows, kColumns, "experts")).prefers_library);
  // Nothing here is cuBLASLt: both stay with our own kernels.
  EXPECT_EQ(packer.library_use().num_taken, 0);
  EXPECT_EQ(packer.library_use().num_left, 2);
  EXPECT_TRUE(packer.status().ok());
}

TEST_F(Packing, asks_no_library_unless_it_is_told_to) {
  ASSERT_NE(uploader_, nullptr);
  Packer packer(*uploader_, GemmPrecision::kBf16, GemmProvider::kOwn);
  EXPECT_FALSE(packed_shape(*packer.stack({all_rows(matrix_)})).prefers_library);
  EXPECT_EQ(packer.library_use().num_left, 0);
}

}  // namespace
}  // namespace dhs
