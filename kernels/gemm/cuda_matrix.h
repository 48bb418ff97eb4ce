// cuda_matrix: packed matrices in device memory.
//
// Rows as checkpoints have them, in the matrix's own precision, padded with zeros to whole stages
// of 128 bytes; matrices follow each other. fp8: then the scales, [count, ceil(n / 128),
// scale_stride] f32, padded with zeros to 16 bytes a row, as cuBLASLt reads them.
#pragma once

#include <cstddef>

#include "kernels/gemm/device_library.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/gemm/packed_matrix.h"

namespace dhs::cuda {

class CudaMatrix : public PackedMatrix {
 public:
  explicit CudaMatrix(const PackedShape& shape) : PackedMatrix(shape) {}
  ~CudaMatrix() override;

  // False when the memory is not there.
  bool reserve();
  bool pack(int64_t index, TensorView<const float, 2> w, Stream stream) override;
  int64_t bytes() const override { return weight_range_bytes() + scale_floats() * 4; }
  bool uses_any_tile() const override { return true; }
  bool uses_library() const override { return library_ != nullptr; }

  int64_t row_bytes() const {
    const int64_t bytes = shape().k * weight_bytes(shape().precision);
    return ceil_quotient(bytes, kStageBytes) * kStageBytes;
  }
  // fp8: blocks of 128 columns, and of 128 rows of one matrix.
  int64_t num_blocks() const { return ceil_quotient(shape().k, kFp8BlockColumns); }
  int64_t num_row_blocks() const { return ceil_quotient(shape().n, kFp8BlockRows); }
  int64_t scale_stride() const { return ceil_quotient(num_blocks(), 4) * 4; }
  const std::byte* weights() const { return data_; }
  const float* scales() const {
    return reinterpret_cast<const float*>(data_ + weight_range_bytes());
  }

  // Gives the packed matrix to the library if it is one of those that launch_gemm may send there,
  // and the library has an algorithm for it. pack does so where the shape prefers it.
  void offer_to(DeviceLibrary& library, Stream stream);
  // Null: our own kernels compute.
  const LibraryGemm* library() const { return library_; }
  // Not for f32.
  LibraryMatrix library_matrix() const;

 private:
  int64_t weight_range_bytes() const { return shape().count * shape().n * row_bytes(); }
  int64_t scale_floats() const {
    const bool is_fp8 = shape().precision == GemmPrecision::kFp8;
    return is_fp8 ? shape().count * num_row_blocks() * scale_stride() : 0;
  }

  bool suits_library(Stream stream) const;

  std::byte* data_ = nullptr;
  const LibraryGemm* library_ = nullptr;
};

}  // namespace dhs::cuda
