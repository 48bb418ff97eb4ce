// gemm on CUDA: from parameters to launches. The kernels are in mma_gemm.h (bf16, fp8) and
// ffma_gemm.h (f32), what they share in gemm_problem.h, the choice among them in gemm_config.h.
// A matrix that was given to cuBLASLt when it was packed goes through library_product.h instead.
//
// One problem is one launch, plus one that quantises the rows (fp8) and one that adds stretches
// (few rows). Scratch holds the quantised rows and the stretches' sums; fp8 products of more rows
// than half of it holds run in several goes.
#include <algorithm>
#include <optional>

#include "kernels/cuda/launch.h"
#include "kernels/gemm/cuda_matrix.h"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/gemm/library_product.h"
#include "kernels/gemm/tile_launch.h"
#include "kernels/quantize/quantize_rows.h"

namespace dhs {
namespace cuda {
namespace {

[[noreturn]] void refuse(const char* op, const char* why) {
  std::fprintf(stderr, "%s: %s\n", op, why);
  std::abort();
}

GemmProblem problem_of(const CudaMatrix& matrix) {
  GemmProblem problem;
  problem.weights = matrix.weights();
  problem.row_bytes = matrix.row_bytes();
  problem.n = matrix.shape().n;
  problem.k = matrix.shape().k;
  problem.stretch = stretch_columns(problem.n, problem.k);
  problem.num_stretches = ceil_quotient(problem.k, problem.stretch);
  if (matrix.shape().precision == GemmPrecision::kFp8) {
    problem.w_scales = matrix.scales();
    problem.w_scale_stride = matrix.scale_stride();
    problem.num_blocks = matrix.num_blocks();
  }
  return problem;
}

void set_rows(GemmProblem& problem, TensorView<const float, 2> a, TensorView<float, 2> out) {
  problem.end_row = a.sizes[0];
  problem.a = a.data;
  problem.a_row_stride = a.strides[0];
  problem.out = out.data;
  problem.out_row_stride = out.strides[0];
}

bool rows_are_aligned(const GemmProblem& problem) {
  return reinterpret_cast<uintptr_t>(problem.a) % 16 == 0 && problem.a_row_stride % 4 == 0 &&
         problem.a_head_stride % 4 == 0;
}

// Quantises rows [first_row, end_row) into scratch.
void quantize_into(GemmProblem& problem, ScratchCarver& scratch, Stream stream) {
  const int64_t num_rows = (problem.end_row - problem.first_row) * problem.num_heads;
  F8E4m3* q = scratch.take<F8E4m3>(num_rows * problem.row_bytes);
  float* scales = scratch.take<float>(num_rows * problem.num_blocks);
  if (q == nullptr || scales == nullptr) refuse("gemm_fp8", "scratch holds not one row");
  quantize_rows({.x = problem.a + problem.first_row * problem.a_row_stride,
                 .num_rows = num_rows,
                 .row_stride = problem.a_row_stride,
                 .num_heads = problem.num_heads,
                 .head_stride = problem.a_head_stride,
                 .width = problem.k,
                 .q = q,
                 .q_stride = problem.row_bytes,
                 .q_width = problem.row_bytes,
                 .scales = scales,
                 .scales_row_stride = problem.num_blocks},
                stream);
  problem.q = q;
  problem.a_scales = scales;
}

void launch_tile(GemmPrecision precision, const GemmProblem& problem, GemmTile tile, dim3 grid,
                 Stream stream) {
  switch (precision) {
    case GemmPrecision::kF32:
      return launch_tile_f32(problem, tile, grid, stream);
    case GemmPrecision::kBf16:
      return launch_tile_bf16(problem, tile, grid, stream);
    case GemmPrecision::kFp8:
      return launch_tile_fp8(problem, tile, grid, stream);
  }
}

// The rows [first_row, end_row) of the problem; `forced` overrides pick_config.
void run_rows(GemmPrecision precision, GemmProblem problem, const std::optional<GemmConfig>& forced,
              Stream stream) {
  ScratchCarver scratch(stream);
  if (precision == GemmPrecision::kFp8) quantize_into(problem, scratch, stream);
  const GemmDesc desc{.precision = precision,
                      .m = problem.end_row - problem.first_row,
                      .n = problem.n,
                      .k = problem.k,
                      .num_heads = problem.num_heads,
                      .num_groups = problem.num_groups,
                      .num_sms = std::max(stream.num_sms, 1),
                      .partial_floats = scratch.left_bytes() / 4};
  const GemmConfig config = forced.value_or(pick_config(desc));
  if (config.splits_k) {
    problem.partials = scratch.take<float>(partial_floats_of(desc));
    if (problem.partials == nullptr) refuse("gemm", "scratch does not hold the stretches' sums");
  }
  const int64_t splits = config.splits_k ? problem.num_stretches : 1;
  const int64_t row_tiles = num_row_tiles(desc, tile_block_m(precision, config.tile));
  const int64_t column_tiles = ceil_quotient(problem.n, tile_block_n(precision, config.tile));
  launch_tile(precision, problem, config.tile,
              {unsigned(row_tiles), unsigned(column_tiles), unsigned(problem.num_heads * splits)},
              stream);
  if (config.splits_k) launch_add_stretches(problem, stream);
}

void run(const CudaMatrix& matrix, GemmProblem& problem, const std::optional<GemmConfig>& forced,
         Stream stream) {
  const GemmPrecision precision = matrix.shape().precision;
  const int64_t num_rows = problem.end_row;
  if (num_rows == 0 || problem.num_heads == 0) return;
  problem.a_is_aligned = rows_are_aligned(problem);
  int64_t rows_at_once = num_rows;
  if (precision == GemmPrecision::kFp8) {
    const int64_t row_scratch = problem.num_heads * (problem.row_bytes + problem.num_blocks * 4);
    rows_at_once = std::max<int64_t>(1, (stream.scratch_bytes / 2 - 512) / row_scratch);
  }
  for (int64_t first = 0; first < num_rows; first += rows_at_once) {
    problem.first_row = first;
    problem.end_row = std::min(first + rows_at_once, num_rows);
    run_rows(precision, problem, forced, stream);
  }
}

void check_shapes(const CudaMatrix& matrix, const GemmParams& params) {
  if (params.a.sizes[1] != matrix.shape().k || params.out.sizes[1] != matrix.shape().n ||
      params.out.sizes[0] != params.a.sizes[0]) {
    refuse("launch_gemm", "a or out has the wrong shape");
  }
}

void run_gemm(const GemmParams& params, const std::optional<GemmConfig>& forced, Stream stream) {
  const auto& matrix = static_cast<const CudaMatrix&>(*params.weights);
  check_shapes(matrix, params);
  GemmProblem problem = problem_of(matrix);
  set_rows(problem, params.a, params.out);
  run(matrix, problem, forced, stream);
}

void run_library(const CudaMatrix& matrix, const GemmParams& params, Stream stream) {
  check_shapes(matrix, params);
  const LibraryMatrix view = matrix.library_matrix();
  if (run_library_product(*matrix.library(), view, params.a, params.out, stream)) return;
  // Our own kernel would give these rows other bits than their neighbours have had.
  std::fprintf(stderr,
               "launch_gemm: cuBLASLt refused %lld rows of a matrix of %lld x %lld, which it had "
               "accepted when the matrix was packed; device.gemm: own does without it\n",
               static_cast<long long>(params.a.sizes[0]), static_cast<long long>(view.n),
               static_cast<long long>(view.k));
  std::abort();
}

void run_head_gemm(const HeadGemmParams& params, const std::optional<GemmConfig>& forced,
                   Stream stream) {
  const auto& matrix = static_cast<const CudaMatrix&>(*params.weights);
  const int64_t num_heads = params.a.sizes[1];
  if (params.a.sizes[2] != matrix.shape().k || params.out.sizes[2] != matrix.shape().n ||
      params.out.sizes[0] != params.a.sizes[0] || params.out.sizes[1] != num_heads ||
      params.first_head < 0 || params.first_head + num_heads > matrix.shape().count) {
    refuse("launch_head_gemm", "a or out has the wrong shape, or the heads are not there");
  }
  GemmProblem problem = problem_of(matrix);
  problem.end_row = params.a.sizes[0];
  problem.first_matrix = params.first_head;
  problem.num_heads = num_heads;
  problem.a = params.a.data;
  problem.a_row_stride = params.a.strides[0];
  problem.a_head_stride = params.a.strides[1];
  problem.out = params.out.data;
  problem.out_row_stride = params.out.strides[0];
  problem.out_head_stride = params.out.strides[1];
  run(matrix, problem, forced, stream);
}

void run_grouped_gemm(const GroupedGemmParams& params, const std::optional<GemmConfig>& forced,
                      Stream stream) {
  const auto& matrix = static_cast<const CudaMatrix&>(*params.weights);
  if (params.a.sizes[1] != matrix.shape().k || params.out.sizes[1] != matrix.shape().n ||
      params.out.sizes[0] != params.a.sizes[0] ||
      params.offsets.sizes[0] != matrix.shape().count + 1 || params.offsets.strides[0] != 1) {
    refuse("launch_grouped_gemm", "a, out or offsets has the wrong shape");
  }
  GemmProblem problem = problem_of(matrix);
  set_rows(problem, params.a, params.out);
  problem.offsets = params.offsets.data;
  problem.num_groups = matrix.shape().count;
  run(matrix, problem, forced, stream);
}

}  // namespace

void launch_gemm_by_own_kernel(const GemmParams& params, Stream stream) {
  run_gemm(params, std::nullopt, stream);
}
void launch_gemm_as(const GemmParams& params, GemmConfig config, Stream stream) {
  run_gemm(params, config, stream);
}
void launch_head_gemm_as(const HeadGemmParams& params, GemmConfig config, Stream stream) {
  run_head_gemm(params, config, stream);
}
void launch_grouped_gemm_as(const GroupedGemmParams& params, GemmConfig config, Stream stream) {
  run_grouped_gemm(params, config, stream);
}

}  // namespace cuda

void launch_gemm_cuda(const GemmParams& params, Stream stream) {
  const auto& matrix = static_cast<const cuda::CudaMatrix&>(*params.weights);
  if (matrix.library() != nullptr) return cuda::run_library(matrix, params, stream);
  cuda::run_gemm(params, std::nullopt, stream);
}

void launch_head_gemm_cuda(const HeadGemmParams& params, Stream stream) {
  cuda::run_head_gemm(params, std::nullopt, stream);
}

void launch_grouped_gemm_cuda(const GroupedGemmParams& params, Stream stream) {
  cuda::run_grouped_gemm(params, std::nullopt, stream);
}

}  // namespace dhs
