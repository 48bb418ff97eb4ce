#include "kernels/cuda/dispatch.h"
#include "kernels/step_rows/step_rows.h"

namespace dhs {
namespace {

void launch_step_rows_cpu(const StepRowsParams& params) {
  const bool has_pages = params.page_table.data != nullptr;
  for (int64_t i = 0; i < params.positions.sizes[0]; ++i) {
    const int32_t position = params.positions(i);
    params.visible(i) = position < 0 ? 0 : position + 1;
    if (position < 0) {
      params.host_rows(i) = -1;
      params.item_of_token(i) = -1;
      if (has_pages) params.page_of_token(i) = -1;
      continue;
    }
    const int32_t sequence = params.sequence_of_row(i);
    const int32_t block = position / params.block_tokens;
    params.host_rows(i) = int64_t{params.block_table(sequence, block)} * params.block_tokens +
                          position % params.block_tokens;
    params.item_of_token(i) = params.item_table(sequence, block);
    if (has_pages) params.page_of_token(i) = params.page_table(sequence, block);
  }
}

}  // namespace

DHS_LAUNCHER(launch_step_rows, StepRowsParams)

}  // namespace dhs
