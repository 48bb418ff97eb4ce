#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/draft_rows/draft_rows.h"

namespace dhs {
namespace {

void launch_draft_rows_cpu(const DraftRowsParams& params) {
  DHS_CHECK(params.tokens.sizes[0] == params.anchors.sizes[0] * params.block_rows,
            "rows: ", params.tokens.sizes[0], ", blocks: ", params.anchors.sizes[0], " of ",
            params.block_rows);
  for (int64_t row = 0; row < params.tokens.sizes[0]; ++row) {
    const int64_t block = row / params.block_rows;
    const auto i = static_cast<int32_t>(row % params.block_rows);
    const int32_t position = params.anchor_positions(block);
    const bool is_anchor = i == 0 && position >= 0;
    params.tokens(row) = is_anchor ? params.anchors(block) : params.mask_token;
    params.positions(row) = position < 0 ? -1 : position + i;
  }
}

}  // namespace

DHS_LAUNCHER(launch_draft_rows, DraftRowsParams)

}  // namespace dhs
