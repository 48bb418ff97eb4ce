// draft_rows: tokens and positions of the rows of draft blocks.
//
//   tokens[b * block_rows + i]    = anchors[b] for i = 0, mask_token after it
//   positions[b * block_rows + i] = anchor_positions[b] + i
// A block whose anchor's position is negative is padding: its tokens are mask_token, whatever the
// anchor, and its positions -1. Bytes moved: 8 per row.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct DraftRowsParams {
  TensorView<const int32_t, 1> anchors;           // [num_blocks] tokens
  TensorView<const int32_t, 1> anchor_positions;  // [num_blocks]
  int32_t block_rows = 0;
  int32_t mask_token = 0;
  TensorView<int32_t, 1> tokens;     // out: [num_blocks * block_rows]
  TensorView<int32_t, 1> positions;  // out: [num_blocks * block_rows]
};
void launch_draft_rows(const DraftRowsParams& params, Stream stream);

}  // namespace dhs
