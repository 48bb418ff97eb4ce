// library_gemm: products by cuBLASLt, with one algorithm for all row counts of a matrix.
//
// The library promises nothing about the bits of a row in batches of different sizes. So one
// algorithm is chosen per shape of a matrix, without split k and without workspace (which rules out
// stream-k), and it is kept only when it accepts every row count that it may be called with and
// passes a trial (library_trial.h). What it is called with later differs from that in addresses
// alone, so that a product cannot be refused any more.
//
// fp8 takes Hopper and CUDA 12.9 or newer; a library that knows no such scales refuses the
// descriptions, and no algorithm is kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/gemm/cublaslt_api.h"
#include "kernels/gemm/gemm.h"

namespace dhs::cuda {

// Rows of one call: arithmetic hides that weights are read again for more. Fewer for large
// matrices, so that a trial of the largest call takes no more memory than this for its rows, or its
// results.
inline constexpr int64_t kMaxLibraryRows = 2048;
inline constexpr int64_t kMaxTrialBytes = int64_t{128} << 20;
// fp8: rows of a are taken by four, because their scales are read by 16 bytes. Columns of out are
// taken by four at every precision, so that its rows start at 16 bytes.
inline constexpr int64_t kLibraryGranule = 4;

constexpr int64_t library_row_step(GemmPrecision precision) {
  return precision == GemmPrecision::kFp8 ? kLibraryGranule : 1;
}

// A packed matrix as the library reads it. Device memory, every address at 16 bytes.
struct LibraryMatrix {
  GemmPrecision precision = GemmPrecision::kBf16;  // or kFp8
  int64_t n = 0;                                   // a multiple of kLibraryGranule
  int64_t k = 0;
  int64_t padded_k = 0;           // of w and a: a whole number of kStageBytes
  const void* w = nullptr;        // [n, padded_k]
  const float* scales = nullptr;  // fp8: [ceil(n / 128), padded_k / 128 rounded up to four]
};

constexpr int64_t max_library_rows(const LibraryMatrix& matrix) {
  const int64_t bytes = 4 * std::max(matrix.n, matrix.padded_k);
  const int64_t rows = std::clamp(kMaxTrialBytes / bytes, kLibraryGranule, kMaxLibraryRows);
  return rows / kLibraryGranule * kLibraryGranule;
}

// Rows of a and what becomes of them: out[m, n] = a[m, padded_k] w^T, all dense. Device memory,
// every address at 16 bytes.
struct LibraryRows {
  int64_t m = 0;  // at most max_library_rows, a multiple of library_row_step
  const void* a = nullptr;
  const float* scales = nullptr;  // fp8: [padded_k / 128, m]
  float* out = nullptr;
};

class LibraryGemm {
 public:
  // Whether the algorithm passes the trial of a matrix.
  using Trial = std::function<bool(const LibraryGemm&)>;

  // Null when the library has no algorithm for the matrix's shape that accepts every row count and
  // passes. The product is of that shape only; the matrix need not outlive the call.
  static std::unique_ptr<LibraryGemm> make(const CublasLtApi& api, cublasLtHandle_t handle,
                                           const LibraryMatrix& matrix, const Trial& trial);

  // Queues the product. False when the library refuses, which it said it would not.
  bool run(const LibraryMatrix& matrix, const LibraryRows& rows, Stream stream) const;
  const cublasLtMatmulAlgo_t& algorithm() const { return algorithm_; }

 private:
  LibraryGemm(const CublasLtApi& api, cublasLtHandle_t handle) : api_(api), handle_(handle) {}
  bool accepts(const LibraryMatrix& matrix, int64_t m) const;
  bool accepts_every_row_count(const LibraryMatrix& matrix) const;

  const CublasLtApi api_;
  cublasLtHandle_t handle_;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace dhs::cuda
