// packed_matrix: what every backend's matrices have in common. A matrix is used only with streams
// of the device it was made for, so launchers know its kind from their stream.
#pragma once

#include "kernels/gemm/gemm.h"

namespace dhs {

class PackedMatrix {
 public:
  explicit PackedMatrix(const PackedShape& shape) : shape_(shape) {}
  virtual ~PackedMatrix() = default;

  const PackedShape& shape() const { return shape_; }
  virtual bool pack(int64_t index, TensorView<const float, 2> w, Stream stream) = 0;
  virtual int64_t bytes() const = 0;
  virtual bool uses_any_tile() const = 0;
  virtual bool uses_library() const { return false; }

 private:
  const PackedShape shape_;
};

// Null when the memory is not there. The CUDA version is weak: see kernels/cuda/dispatch.h.
PackedMatrixPtr make_packed_matrix_cpu(const PackedShape& shape);
[[gnu::weak]] PackedMatrixPtr make_packed_matrix_cuda(const PackedShape& shape, Stream stream);

}  // namespace dhs
