// library_product: out = a w^T by the library, from f32 rows wherever they lie.
//
// Rows go into scratch in the matrix's precision, as many at once as it holds: bf16 rounded to
// nearest even; fp8 quantised (kernels/quantize), rows beyond a multiple of four being zeros and
// the scales of one block of columns lying together. Results that the library cannot write in place
// (rows that are not dense or not aligned, or that zero rows follow) come back through scratch.
#pragma once

#include "kernels/gemm/library_gemm.h"

namespace dhs::cuda {

// Whether the stream's scratch holds so many rows that the library is worth asking.
bool scratch_suits_library(const LibraryMatrix& matrix, Stream stream);

// a: [m, k], out: [m, n], rows may be strided. The scratch must suit. False when the library
// refuses: out is not complete.
[[nodiscard]] bool run_library_product(const LibraryGemm& gemm, const LibraryMatrix& matrix,
                                       TensorView<const float, 2> a, TensorView<float, 2> out,
                                       Stream stream);

}  // namespace dhs::cuda
