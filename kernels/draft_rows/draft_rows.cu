// draft_rows on CUDA: one thread per row, 128 threads per block, no shared memory. A step has few
// rows: bound by the latency of one load; 8 bytes per row.
#include "kernels/cuda/launch.h"
#include "kernels/draft_rows/draft_rows.h"

namespace dhs {
namespace {

constexpr int kThreads = 128;

__global__ void draft_rows_kernel(DraftRowsParams params) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= params.tokens.sizes[0]) return;
  const int64_t block = row / params.block_rows;
  const auto i = static_cast<int32_t>(row % params.block_rows);
  const int32_t position = params.anchor_positions(block);
  const bool is_anchor = i == 0 && position >= 0;
  params.tokens(row) = is_anchor ? params.anchors(block) : params.mask_token;
  params.positions(row) = position < 0 ? -1 : position + i;
}

}  // namespace

void launch_draft_rows_cuda(const DraftRowsParams& params, Stream stream) {
  const int64_t num_blocks = (params.tokens.sizes[0] + kThreads - 1) / kThreads;
  cuda::launch("draft_rows", draft_rows_kernel,
               {.grid = dim3(static_cast<unsigned>(num_blocks)), .block = dim3(kThreads)}, stream,
               params);
}

}  // namespace dhs
