// Beyond gemm.h: products by our own kernels whatever the matrix prefers, and, for tests, with a
// forced tile.
#pragma once

#include "kernels/gemm/gemm_config.h"

namespace dhs::cuda {

void launch_gemm_by_own_kernel(const GemmParams& params, Stream stream);
void launch_gemm_as(const GemmParams& params, GemmConfig config, Stream stream);
void launch_head_gemm_as(const HeadGemmParams& params, GemmConfig config, Stream stream);
void launch_grouped_gemm_as(const GroupedGemmParams& params, GemmConfig config, Stream stream);

}  // namespace dhs::cuda
