// panel_verify: whether a panel kernel keeps the bits of a row whatever it is computed with.
#pragma once

#include <cstdint>

#include "kernels/gemm/panel_kernel.h"

namespace dhs {

// Runs the kernel on full-mantissa noise in all tiles of kTileRows, with rows moved about, beside
// other rows and beside padding. kAnyTile: every row always gave the same bits. kFixedTile: it did
// so at least within tiles of kFixedTileRows. kOwnLoop: not even that; the kernel must not be used.
TileRule verified_rule(const PanelKernel& kernel, GemmMath math, int64_t columns, int64_t k);

}  // namespace dhs
