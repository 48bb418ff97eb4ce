// gemm's entries in a program that has the CUDA version only: its CPU version needs oneDNN.
#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/packed_matrix.h"

namespace dhs {
namespace {

[[noreturn]] void no_cpu_version() {
  check_failed(__FILE__, __LINE__, "gemm", "this program holds no CPU version of gemm");
}

void launch_gemm_cpu(const GemmParams&) { no_cpu_version(); }
void launch_head_gemm_cpu(const HeadGemmParams&) { no_cpu_version(); }
void launch_grouped_gemm_cpu(const GroupedGemmParams&) { no_cpu_version(); }

}  // namespace

DHS_LAUNCHER(launch_gemm, GemmParams)
DHS_LAUNCHER(launch_head_gemm, HeadGemmParams)
DHS_LAUNCHER(launch_grouped_gemm, GroupedGemmParams)

PackedMatrixPtr make_packed_matrix_cpu(const PackedShape&) { no_cpu_version(); }

}  // namespace dhs
