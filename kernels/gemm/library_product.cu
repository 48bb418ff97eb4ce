// library_product: rows on their way to the library and results on their way back.
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/gemm/gemm_config.h"
#include "kernels/gemm/library_product.h"
#include "kernels/quantize/quantize_rows.h"

namespace dhs::cuda {
namespace {

constexpr char kOp[] = "gemm by cuBLASLt";
constexpr int64_t kLeastRows = 64;  // of one call that scratch must hold beside their results
constexpr int64_t kAlignmentLoss = 3 * 256;  // of rows, scales and results in scratch

// Scratch bytes of one row of a; fp8: and of its scales.
int64_t row_scratch(const LibraryMatrix& matrix) {
  const int64_t blocks = matrix.scales != nullptr ? matrix.padded_k / kFp8BlockColumns : 0;
  return matrix.padded_k * weight_bytes(matrix.precision) + blocks * 4;
}

int64_t rows_in_scratch(const LibraryMatrix& matrix, bool in_place, Stream stream) {
  const int64_t bytes = row_scratch(matrix) + (in_place ? 0 : matrix.n * 4);
  const int64_t rows =
      std::min((stream.scratch_bytes - kAlignmentLoss) / bytes, max_library_rows(matrix));
  const int64_t step = library_row_step(matrix.precision);
  return rows / step * step;
}

bool can_write_in_place(const LibraryMatrix& matrix, TensorView<float, 2> out) {
  return out.strides[0] == matrix.n && reinterpret_cast<uintptr_t>(out.data) % 16 == 0 &&
         out.sizes[0] % library_row_step(matrix.precision) == 0;
}

// ---- Rounding rows: a thread per eight columns, 128 threads, grid (column blocks, rows). --------

struct RoundRows {
  TensorView<const float, 2> from;  // [m, k]
  __nv_bfloat16* to;                // [m, padded_k], zeros from k on
  int64_t padded_k;                 // a multiple of kColumnsPerThread
};

constexpr int kRoundThreads = 128;
constexpr int kColumnsPerThread = 8;

__global__ void __launch_bounds__(kRoundThreads) round_rows_kernel(RoundRows rows) {
  const int64_t first = (int64_t{blockIdx.x} * kRoundThreads + threadIdx.x) * kColumnsPerThread;
  if (first >= rows.padded_k) return;
  const int64_t k = rows.from.sizes[1];
  for (int64_t row = blockIdx.y; row < rows.from.sizes[0]; row += gridDim.y) {
    const float* from = rows.from.data + row * rows.from.strides[0];
    __nv_bfloat16* to = rows.to + row * rows.padded_k;
    for (int64_t i = first; i < first + kColumnsPerThread; ++i) {
      to[i] = __float2bfloat16_rn(i < k ? from[i] : 0.0f);
    }
  }
}

void round_rows(const RoundRows& rows, Stream stream) {
  constexpr int64_t kColumns = kRoundThreads * kColumnsPerThread;
  constexpr int64_t kMaxGridRows = 65535;
  const int64_t column_blocks = ceil_quotient(rows.padded_k, kColumns);
  launch("gemm_round_rows", round_rows_kernel,
         {.grid = {unsigned(column_blocks), unsigned(std::min(rows.from.sizes[0], kMaxGridRows))},
          .block = kRoundThreads},
         stream, rows);
}

// ---- One call -----------------------------------------------------------------------------------

template <class T>
T* taken(ScratchCarver& scratch, int64_t count) {
  T* data = scratch.take<T>(count);
  if (data == nullptr) {
    std::fprintf(stderr, "%s: scratch does not hold the rows\n", kOp);
    std::abort();
  }
  return data;
}

// The rows of a in scratch; out is not set.
LibraryRows rows_for_library(const LibraryMatrix& matrix, TensorView<const float, 2> a,
                             ScratchCarver& scratch, Stream stream) {
  const int64_t step = library_row_step(matrix.precision);
  const int64_t m = ceil_quotient(a.sizes[0], step) * step;
  if (matrix.precision == GemmPrecision::kBf16) {
    auto* rounded = taken<__nv_bfloat16>(scratch, m * matrix.padded_k);
    round_rows({.from = a, .to = rounded, .padded_k = matrix.padded_k}, stream);
    return {.m = m, .a = rounded};
  }
  auto* q = taken<F8E4m3>(scratch, m * matrix.padded_k);
  auto* scales = taken<float>(scratch, m * (matrix.padded_k / kFp8BlockColumns));
  quantize_rows({.x = a.data,
                 .num_rows = a.sizes[0],
                 .row_stride = a.strides[0],
                 .width = matrix.k,
                 .num_zero_rows = m - a.sizes[0],
                 .q = q,
                 .q_stride = matrix.padded_k,
                 .q_width = matrix.padded_k,
                 .scales = scales,
                 .scales_row_stride = 1,
                 .scales_block_stride = m},
                stream);
  return {.m = m, .a = q, .scales = scales};
}

struct LibraryCall {
  const LibraryGemm& gemm;
  const LibraryMatrix& matrix;
  bool in_place;
  Stream stream;
};

// a's rows are no more than scratch holds.
bool run_rows(const LibraryCall& call, TensorView<const float, 2> a, TensorView<float, 2> out) {
  const auto& [gemm, matrix, in_place, stream] = call;
  ScratchCarver scratch(stream);
  LibraryRows rows = rows_for_library(matrix, a, scratch, stream);
  rows.out = in_place ? out.data : taken<float>(scratch, rows.m * matrix.n);
  if (!gemm.run(matrix, rows, stream)) return false;
  if (in_place) return true;
  const size_t row_bytes = static_cast<size_t>(matrix.n) * sizeof(float);
  check(cudaMemcpy2DAsync(out.data, static_cast<size_t>(out.strides[0]) * sizeof(float), rows.out,
                          row_bytes, row_bytes, static_cast<size_t>(out.sizes[0]),
                          cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream.handle)),
        kOp);
  return true;
}

template <class T>
TensorView<T, 2> part_of(TensorView<T, 2> rows, int64_t first, int64_t count) {
  return {rows.row(first), {count, rows.sizes[1]}, {rows.strides[0], 1}};
}

}  // namespace

bool scratch_suits_library(const LibraryMatrix& matrix, Stream stream) {
  return rows_in_scratch(matrix, false, stream) >= kLeastRows;
}

bool run_library_product(const LibraryGemm& gemm, const LibraryMatrix& matrix,
                         TensorView<const float, 2> a, TensorView<float, 2> out, Stream stream) {
  const LibraryCall call{gemm, matrix, can_write_in_place(matrix, out), stream};
  const int64_t rows_at_once = rows_in_scratch(matrix, call.in_place, stream);
  for (int64_t first = 0; first < a.sizes[0]; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, a.sizes[0] - first);
    const auto rows = part_of(a, first, count);
    if (!run_rows(call, rows, part_of(out, first, count))) return false;
  }
  return true;
}

}  // namespace dhs::cuda
