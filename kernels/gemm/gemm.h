// gemm: out[m, n] = sum_k a[m, k] * w[n, k], weights packed once at load time.
//
// Precision. kF32: f32 operands, f32 accumulation. kBf16: both operands rounded to bf16 (nearest
// even), f32 accumulation; where the CPU has no bf16 instructions the rounded values are multiplied
// in f32. The output is f32 either way. bf16 weights occupy two bytes an element everywhere.
//
// Row invariance: the bits of out[m, :] depend on a[m, :] and w only, not on how many rows are
// computed with it, where it stands among them, or how many threads compute. Every later proof
// (chunking, batching, residency, speculation) leans on this. It holds across rows because each new
// shape is verified once per process (all tile sizes, rows moved about) and, where the library's
// kernels disagree, falls back to one fixed row tile, at worst to our own loop. It holds across
// threads because a matrix is cut into column panels by its shape alone, and one panel is always
// computed by one thread.
//
// Bytes read: n * k * element size per tile of up to kGemmTileRows rows; FLOPs: 2 m n k (rows of a
// tile are padded with zeros to 1, 2, 4, 8, 12, 16, 24, 32, 48 or 64). Zero rows are legal.
// Library: oneDNN matmul with weights in its packed layout. Scratch belongs to the calling threads:
// it grows to the largest shape seen and is then reused.
#pragma once

#include <memory>

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int kGemmTileRows = 64;

enum class GemmPrecision { kF32, kBf16 };

class PackedMatrix;  // immutable after packing; used from one thread at a time
struct PackedMatrixDeleter {
  void operator()(PackedMatrix* matrix) const;
};
using PackedMatrixPtr = std::unique_ptr<PackedMatrix, PackedMatrixDeleter>;

// w: [n, k] f32, k >= 1, row-major as checkpoints store it (out_features, in_features); rows may be
// strided. Reads w once and keeps no pointer to it. The first call for a shape compiles and
// verifies its kernels (milliseconds). Null when the memory for the packed copy is not there.
PackedMatrixPtr pack_matrix(GemmPrecision precision, TensorView<const float, 2> w);
int64_t packed_matrix_bytes(const PackedMatrix& matrix);
// True when rows of all tile sizes agreed bit for bit; false when the fixed tile is in use.
bool packed_matrix_uses_any_tile(const PackedMatrix& matrix);

struct GemmParams {
  const PackedMatrix* weights = nullptr;
  TensorView<const float, 2> a;  // [m, k], rows may be strided, columns contiguous
  TensorView<float, 2> out;      // [m, n], rows may be strided, columns contiguous
};
void launch_gemm(const GemmParams& params, Stream stream);

// One small product per attention head: out[m, h, :] = w_h a[m, h, :]. Same promises, and the same
// bits as launch_gemm on each head.
struct HeadGemmParams {
  const PackedMatrixPtr* weights = nullptr;  // [num_heads], equal shapes and precision
  TensorView<const float, 3> a;              // [m, num_heads, k], last axis contiguous
  TensorView<float, 3> out;                  // [m, num_heads, n], last axis contiguous
};
void launch_head_gemm(const HeadGemmParams& params, Stream stream);

// Truth for tests: operands rounded as above, products and sums in f64, one rounding at the end.
void gemm_ref(GemmPrecision precision, TensorView<const float, 2> w, TensorView<const float, 2> a,
              TensorView<float, 2> out);

}  // namespace dhs
