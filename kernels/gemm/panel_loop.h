// panel_loop: the panel kernel of last resort, written so that rows cannot influence each other.
// Slow (no tiling); used only where the library has no kernel or none that keeps bits. And the
// kernel of fp8, which the library does not know: written the same way.
#pragma once

#include <memory>

#include "kernels/gemm/panel_kernel.h"

namespace dhs {

std::unique_ptr<PanelKernel> make_loop_kernel(GemmMath math, int64_t columns, int64_t k);
std::unique_ptr<PanelKernel> make_fp8_kernel(int64_t columns, int64_t k);

}  // namespace dhs
