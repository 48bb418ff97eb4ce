// step_rows on CUDA: one thread per row, 128 threads per block, no shared memory. A step has few
// rows: bound by the latency of two dependent loads; 32 or 40 bytes per row.
#include "kernels/cuda/launch.h"
#include "kernels/step_rows/step_rows.h"

namespace dhs {
namespace {

constexpr int kThreads = 128;

__global__ void step_rows_kernel(StepRowsParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.positions.sizes[0]) return;
  const int32_t position = params.positions(i);
  int64_t host_row = -1;
  int32_t item = -1;
  int32_t page = -1;
  const bool has_pages = params.page_table.data != nullptr;
  if (position >= 0) {
    const int32_t sequence = params.sequence_of_row(i);
    const int32_t block = position / params.block_tokens;
    host_row = int64_t{params.block_table(sequence, block)} * params.block_tokens +
               position % params.block_tokens;
    item = params.item_table(sequence, block);
    if (has_pages) page = params.page_table(sequence, block);
  }
  params.host_rows(i) = host_row;
  params.item_of_token(i) = item;
  if (has_pages) params.page_of_token(i) = page;
  params.visible(i) = position < 0 ? 0 : position + 1;
}

}  // namespace

void launch_step_rows_cuda(const StepRowsParams& params, Stream stream) {
  const int64_t num_blocks = (params.positions.sizes[0] + kThreads - 1) / kThreads;
  cuda::launch("step_rows", step_rows_kernel,
               {.grid = dim3(static_cast<unsigned>(num_blocks)), .block = dim3(kThreads)}, stream,
               params);
}

}  // namespace dhs
