#include "kernels/gemm/gemm.h"

#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/gemm/packed_matrix.h"

namespace dhs {

void PackedMatrixDeleter::operator()(PackedMatrix* matrix) const { delete matrix; }

PackedMatrixPtr make_packed_matrix(const PackedShape& shape, Stream stream) {
  DHS_CHECK(shape.count >= 1 && shape.n >= 1 && shape.k >= 1, shape.count, " matrices of ", shape.n,
            " x ", shape.k);
  if (stream.handle == nullptr) return make_packed_matrix_cpu(shape);
  if (&make_packed_matrix_cuda == nullptr) no_cuda_version("make_packed_matrix");
  return make_packed_matrix_cuda(shape, stream);
}

bool pack_into(PackedMatrix& matrix, int64_t index, TensorView<const float, 2> w, Stream stream) {
  const PackedShape& shape = matrix.shape();
  DHS_CHECK(index >= 0 && index < shape.count, "matrix ", index, " of ", shape.count);
  DHS_CHECK(w.sizes[0] == shape.n && w.sizes[1] == shape.k, "w is ", w.sizes[0], " x ", w.sizes[1],
            ", not ", shape.n, " x ", shape.k);
  DHS_CHECK(w.strides[1] == 1, "columns must be contiguous, stride is ", w.strides[1]);
  return matrix.pack(index, w, stream);
}

PackedMatrixPtr pack_matrix(GemmPrecision precision, TensorView<const float, 2> w, Stream stream) {
  PackedMatrixPtr matrix =
      make_packed_matrix({.precision = precision, .n = w.sizes[0], .k = w.sizes[1]}, stream);
  if (matrix == nullptr || !pack_into(*matrix, 0, w, stream)) return nullptr;
  return matrix;
}

const PackedShape& packed_shape(const PackedMatrix& matrix) { return matrix.shape(); }

int64_t packed_matrix_bytes(const PackedMatrix& matrix) { return matrix.bytes(); }

bool packed_matrix_uses_any_tile(const PackedMatrix& matrix) { return matrix.uses_any_tile(); }

bool packed_matrix_uses_library(const PackedMatrix& matrix) { return matrix.uses_library(); }

}  // namespace dhs
