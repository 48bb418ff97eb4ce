// library_gemm: bf16 products by cuBLASLt, with one algorithm for all row counts of a matrix.
//
// The library promises nothing about the bits of a row in batches of different sizes. So an
// algorithm is chosen once, without split k and without workspace (which rules out stream-k), and
// trusted only after a trial: the same rows, in batches of many sizes and at other places, gave the
// same bits, and about what our own kernel gives. Otherwise the matrix stays with our kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "dhisparse/stream.h"
#include "kernels/gemm/cublaslt_api.h"

namespace dhs::cuda {

// out[m, n] = a[m, k] w[n, k]^T, all row-major; strides in elements, a and w bf16, out f32. Every
// row starts at 16 bytes.
struct LibraryOperands {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const void* w = nullptr;
  const void* a = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
};

class LibraryGemm {
 public:
  // Whether an algorithm passes the trial of a matrix.
  using Trial = std::function<bool(const LibraryGemm&)>;

  // Null when the library has no algorithm that passes.
  static std::unique_ptr<LibraryGemm> make(const CublasLtApi& api, cublasLtHandle_t handle,
                                           int64_t n, int64_t k, const Trial& trial);

  // False when the library refuses.
  bool run(const LibraryOperands& operands, Stream stream) const;
  const cublasLtMatmulAlgo_t& algorithm() const { return algorithm_; }

 private:
  LibraryGemm(const CublasLtApi& api, cublasLtHandle_t handle) : api_(api), handle_(handle) {}

  const CublasLtApi api_;
  cublasLtHandle_t handle_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// Whether `gemm` keeps the bits of rows: see above. shape: of the operands only n, k and w, the
// matrix's rows in device memory; own_product computes with our kernel, dense. Reserves device
// memory while it runs.
using OwnProduct = std::function<void(int64_t m, const float* a, float* out)>;
bool library_keeps_bits(const LibraryGemm& gemm, const LibraryOperands& shape,
                        const OwnProduct& own_product, Stream stream);

// The trusted algorithm for the shape on the current device, found by a trial with w the first
// time. Null when there is none, or no library. Lives as long as the process.
const LibraryGemm* library_gemm_for(const LibraryOperands& shape, const OwnProduct& own_product,
                                    Stream stream);

// Rounds rows to bf16: [m, k] f32 to [m, padded_k], zeros from k on. padded_k: a multiple of 8.
struct RoundRows {
  const float* from = nullptr;
  int64_t from_stride = 0;
  int64_t m = 0;
  int64_t k = 0;
  void* to = nullptr;
  int64_t padded_k = 0;
};
void launch_round_rows(const RoundRows& rows, Stream stream);

}  // namespace dhs::cuda
