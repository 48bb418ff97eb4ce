// What tests need beyond gemm.h: matrices packed for a given arithmetic and tile rule, so that
// every path runs on any machine that has the instructions.
#pragma once

#include <optional>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/panel_kernel.h"

namespace dhs {

// The arithmetic pack_matrix uses for a precision on this machine.
GemmMath gemm_math(GemmPrecision precision);
// All that this machine can run for a precision.
std::vector<GemmMath> supported_gemm_math(GemmPrecision precision);
// `rule` forces a tile rule; nullopt takes what verification found, as make_packed_matrix does.
// Null when the memory is not there.
PackedMatrixPtr make_packed_matrix_as(const PackedShape& shape, GemmMath math,
                                      std::optional<TileRule> rule);

}  // namespace dhs
