// cuda_matrix: rounding on the host, a few megabytes at a time, and copying to the device.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/gemm/cuda_matrix.h"
#include "kernels/gemm/fp8_blocks.h"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/gemm/library_product.h"
#include "kernels/gemm/tile_launch.h"

namespace dhs::cuda {
namespace {

constexpr int64_t kStagingBytes = 8 << 20;

void round_row(GemmPrecision precision, const float* from, int64_t k, std::byte* to) {
  if (precision == GemmPrecision::kF32) {
    std::memcpy(to, from, static_cast<size_t>(k) * sizeof(float));
  } else {
    convert_to_bf16(from, k, reinterpret_cast<Bf16*>(to));
  }
}

void copy_to_device(std::byte* to, const void* from, int64_t bytes, Stream stream) {
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, handle),
        "pack_into");
  check(cudaStreamSynchronize(handle), "pack_into");
}

}  // namespace

CudaMatrix::~CudaMatrix() {
  if (data_ != nullptr) check(cudaFree(data_), "packed matrix");
}

bool CudaMatrix::reserve() {
  void* data = nullptr;
  if (cudaMalloc(&data, static_cast<size_t>(bytes())) != cudaSuccess) {
    cudaGetLastError();  // told by the result; not an error of the next launch
    return false;
  }
  data_ = static_cast<std::byte*>(data);
  return true;
}

bool CudaMatrix::pack(int64_t index, TensorView<const float, 2> w, Stream stream) try {
  const int64_t n = shape().n, k = shape().k;
  const bool is_fp8 = shape().precision == GemmPrecision::kFp8;
  const int64_t rows_at_once =
      std::max<int64_t>(1, kStagingBytes / row_bytes() / kFp8BlockRows) * kFp8BlockRows;
  std::vector<std::byte> staging(static_cast<size_t>(std::min(rows_at_once, n) * row_bytes()));
  std::vector<float> scales(static_cast<size_t>(is_fp8 ? num_row_blocks() * scale_stride() : 0));
  for (int64_t first = 0; first < n; first += rows_at_once) {
    TensorView<const float, 2> part = w;
    part.data = w.row(first);
    part.sizes[0] = std::min(rows_at_once, n - first);
    if (is_fp8) {
      quantize_weights(part, reinterpret_cast<F8E4m3*>(staging.data()), row_bytes(),
                       scales.data() + first / kFp8BlockRows * scale_stride(), scale_stride());
    } else {
      for (int64_t row = 0; row < part.sizes[0]; ++row) {
        round_row(shape().precision, part.row(row), k, staging.data() + row * row_bytes());
      }
    }
    copy_to_device(data_ + (index * n + first) * row_bytes(), staging.data(),
                   part.sizes[0] * row_bytes(), stream);
  }
  if (is_fp8) {
    const int64_t scale_bytes = num_row_blocks() * scale_stride() * 4;
    copy_to_device(data_ + weight_range_bytes() + index * scale_bytes, scales.data(), scale_bytes,
                   stream);
  }
  if (shape().prefers_library) {
    if (DeviceLibrary* library = library_of_current_device()) offer_to(*library, stream);
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

LibraryMatrix CudaMatrix::library_matrix() const {
  const bool is_fp8 = shape().precision == GemmPrecision::kFp8;
  return {.precision = shape().precision,
          .n = shape().n,
          .k = shape().k,
          .padded_k = row_bytes() / weight_bytes(shape().precision),
          .w = data_,
          .scales = is_fp8 ? scales() : nullptr};
}

bool CudaMatrix::suits_library(Stream stream) const {
  return shape().precision != GemmPrecision::kF32 && shape().count == 1 &&
         shape().n % kLibraryGranule == 0 && scratch_suits_library(library_matrix(), stream);
}

void CudaMatrix::offer_to(DeviceLibrary& library, Stream stream) {
  library_ = nullptr;
  if (!suits_library(stream)) return;
  auto own = [&](TensorView<const float, 2> a, TensorView<float, 2> out) {
    launch_gemm_by_own_kernel({this, a, out}, stream);
  };
  library_ = library.find(library_matrix(), own, stream);
}

}  // namespace dhs::cuda

namespace dhs {

PackedMatrixPtr make_packed_matrix_cuda(const PackedShape& shape, Stream /*stream*/) {
  std::unique_ptr<cuda::CudaMatrix> matrix(new (std::nothrow) cuda::CudaMatrix(shape));
  if (matrix == nullptr || !matrix->reserve()) return nullptr;
  if (shape.precision == GemmPrecision::kBf16) cuda::allow_tiles_bf16();
  if (shape.precision == GemmPrecision::kFp8) cuda::allow_tiles_fp8();
  return PackedMatrixPtr(matrix.release());
}

}  // namespace dhs
