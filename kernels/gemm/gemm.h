// gemm: out[m, n] = sum_k a[m, k] * w[n, k], weights packed once at load time.
//
// Precision. kF32: f32 operands, f32 accumulation. kBf16: both operands rounded to bf16 (nearest
// even), f32 accumulation; where the CPU has no bf16 instructions the rounded values are multiplied
// in f32. kFp8: below. The output is f32 always. bf16 weights occupy two bytes an element
// everywhere.
//
// Row invariance: the bits of out[m, :] depend on a[m, :] and w only, not on how many rows are
// computed with it, where it stands among them, or how many threads compute. Every later proof
// (chunking, batching, residency, speculation) leans on this. It holds across rows because each new
// shape is verified once per process (all tile sizes, rows moved about) and, where the library's
// kernels disagree, falls back to one fixed row tile, at worst to our own loop. It holds across
// threads because a matrix is cut into column panels by its shape alone, and one panel is always
// computed by one thread.
//
// On CUDA it holds because every tile of a matrix runs the same program over k in the same order,
// whatever m is; where cuBLASLt computes, because one algorithm does for every m, which was tried
// as the CPU's library is and accepts every m (library_gemm.h, library_trial.h).
//
// Bytes read: n * k * element size per tile of up to kGemmTileRows rows; FLOPs: 2 m n k (rows of a
// tile are padded with zeros). Zero rows are legal. CPU: oneDNN matmul with weights in its packed
// layout; scratch belongs to the calling threads, grows to the largest shape seen and is then
// reused. CUDA: see gemm.cu.
#pragma once

#include <memory>

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int kGemmTileRows = 64;
inline constexpr int64_t kFp8BlockColumns = 128;  // elements of k that share one scale
inline constexpr int64_t kFp8BlockRows = 128;     // rows of w that share one scale

// kFp8: w in e4m3 with one f32 scale per 128 x 128 block, rows of a quantised on the way in to e4m3
// with one power-of-two scale per 128 columns (kernels/quantize); products of 128 columns are
// summed in f32, then scaled, then added. Weights that a checkpoint held so keep their values. A
// row or a block of w with a value that is not finite gives NaN.
enum class GemmPrecision { kF32, kBf16, kFp8 };

// `count` matrices of one shape, immutable after packing: one per attention head or expert, or a
// single one. Lives in the memory of the device it was made for.
class PackedMatrix;
struct PackedMatrixDeleter {
  void operator()(PackedMatrix* matrix) const;
};
using PackedMatrixPtr = std::unique_ptr<PackedMatrix, PackedMatrixDeleter>;

struct PackedShape {
  GemmPrecision precision = GemmPrecision::kF32;
  int64_t count = 1;
  int64_t n = 0;  // >= 1
  int64_t k = 0;  // >= 1
  // CUDA, kBf16 and kFp8, count 1, n a multiple of 4: whether launch_gemm should go through
  // cuBLASLt where that keeps the bits of rows. The bits are the library's then, not those that the
  // same matrix gives among others; its sums of fp8 products may hold 14 bits only. Elsewhere it
  // changes nothing.
  bool prefers_library = false;
};
// Reserves the matrices on the stream's device. Null when the memory is not there.
PackedMatrixPtr make_packed_matrix(const PackedShape& shape, Stream stream);
// Packs w into place `index`. w: [n, k] f32 in host memory, row-major as checkpoints store it
// (out_features, in_features); rows may be strided. Reads w once, has done so on return, and keeps
// no pointer to it. The first call for a shape compiles and verifies its kernels (milliseconds; for
// cuBLASLt some tenths of a second, and up to 256 MiB of device memory meanwhile).
// False when memory ran out.
bool pack_into(PackedMatrix& matrix, int64_t index, TensorView<const float, 2> w, Stream stream);
// Both at once, for a single matrix.
PackedMatrixPtr pack_matrix(GemmPrecision precision, TensorView<const float, 2> w, Stream stream);
const PackedShape& packed_shape(const PackedMatrix& matrix);
int64_t packed_matrix_bytes(const PackedMatrix& matrix);
// CPU: true when rows of all tile sizes agreed bit for bit; false when the fixed tile is in use.
bool packed_matrix_uses_any_tile(const PackedMatrix& matrix);
// Once packed: whether launch_gemm goes through cuBLASLt.
bool packed_matrix_uses_library(const PackedMatrix& matrix);

struct GemmParams {
  const PackedMatrix* weights = nullptr;
  TensorView<const float, 2> a;  // [m, k], rows may be strided, columns contiguous
  TensorView<float, 2> out;      // [m, n], rows may be strided, columns contiguous
};
void launch_gemm(const GemmParams& params, Stream stream);

// One small product per attention head: out[m, h, :] = w_h a[m, h, :]. Same promises, and the same
// bits as launch_gemm on each head.
struct HeadGemmParams {
  const PackedMatrix* weights = nullptr;  // count >= first_head + num_heads
  int64_t first_head = 0;                 // matrix of a's head 0
  TensorView<const float, 3> a;           // [m, num_heads, k], last axis contiguous
  TensorView<float, 3> out;               // [m, num_heads, n], last axis contiguous
};
void launch_head_gemm(const HeadGemmParams& params, Stream stream);

// Rows sorted by matrix: out[i, :] = w_g a[i, :] for i in [offsets[g], offsets[g + 1]). Same
// promises, and the same bits as launch_gemm on each run of rows. Rows from offsets[count] on are
// not touched.
struct GroupedGemmParams {
  const PackedMatrix* weights = nullptr;
  TensorView<const int32_t, 1> offsets;  // [count + 1], rising from 0, at most m
  TensorView<const float, 2> a;          // [m, k]
  TensorView<float, 2> out;              // [m, n]
};
void launch_grouped_gemm(const GroupedGemmParams& params, Stream stream);

// Truth for tests: operands rounded as above, products and sums in f64, one rounding at the end.
void gemm_ref(GemmPrecision precision, TensorView<const float, 2> w, TensorView<const float, 2> a,
              TensorView<float, 2> out);

}  // namespace dhs
