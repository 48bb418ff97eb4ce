// step_rows: where the tokens of a step live, from their positions.
//
//   block = positions[i] / block_tokens
//   host_rows[i] = block_table[sequence_of_row[i], block] * block_tokens
//                  + positions[i] % block_tokens
//   item_of_token[i] = item_table[sequence_of_row[i], block]
//   page_of_token[i] = page_table[sequence_of_row[i], block]
//   visible[i] = positions[i] + 1
// A negative position is padding: host row -1, item -1, page -1, nothing visible. An empty page
// table: no page_of_token. Bytes moved: 32 per token, 40 with pages.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct StepRowsParams {
  TensorView<const int32_t, 1> positions;        // [num_rows]
  TensorView<const int32_t, 1> sequence_of_row;  // [num_rows]
  TensorView<const int32_t, 2> block_table;      // [num_sequences, max_num_blocks]
  TensorView<const int32_t, 2> item_table;       // [num_sequences, max_num_blocks]
  TensorView<const int32_t, 2> page_table;       // [num_sequences, max_num_blocks], or empty
  int32_t block_tokens = 64;
  TensorView<int64_t, 1> host_rows;      // out: [num_rows]
  TensorView<int32_t, 1> item_of_token;  // out: [num_rows]
  TensorView<int32_t, 1> page_of_token;  // out: [num_rows], with a page table only
  TensorView<int32_t, 1> visible;        // out: [num_rows]
};
void launch_step_rows(const StepRowsParams& params, Stream stream);

}  // namespace dhs
