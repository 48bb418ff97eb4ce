// library_trial: what an algorithm of the library has to show before a matrix is given to it.
//
// The trial's rows differ in size from row to row and from one block of columns to the next, so
// that an fp8 scale that is not read from where we wrote it changes results, and results are
// compared within blocks of 128 columns of one row, so that large ones hide no small ones.
#pragma once

#include <functional>

#include "kernels/gemm/library_gemm.h"

namespace dhs::cuda {

// The matrix's product by our own kernels: a: [m, k], out: [m, n], dense, on the trial's stream.
using OwnProduct = std::function<void(TensorView<const float, 2> a, TensorView<float, 2> out)>;

// Both go through run_library_product, as later products do, reserve device memory while they
// run, and say no when there is none.

// Whether a row has the same bits in batches of many sizes, up to the largest that there can be,
// and at other places of a batch.
bool keeps_row_bits(const LibraryGemm& gemm, const LibraryMatrix& matrix, Stream stream);
// Whether results are about our own kernels'.
bool agrees_with_own(const LibraryGemm& gemm, const LibraryMatrix& matrix, const OwnProduct& own,
                     Stream stream);

}  // namespace dhs::cuda
