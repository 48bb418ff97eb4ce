// accept_chain: how many of a draw's draft tokens stand, and the token that comes last.
//
// The logit rows of a draw, first_row[d] to first_row[d + 1], draw the tokens at positions[d],
// positions[d] + 1, ... Row j verifies drafts[j], the draft token at the position that it draws:
// sampling draws exactly that token when the draft token is accepted. The last row of a chain
// usually verifies nothing (-1). With n rows,
//
//   num_accepted    = the number of leading rows with drawn == draft, at most n - 1
//   newest          = drawn of the row after them: the last token that is committed
//   newest_position = positions[d] + num_accepted
// So num_accepted + 1 tokens are committed, all of them drawn by the target: chain verification as
// in speculative sampling (arXiv 2211.17192). A draw without rows or with a negative position is
// padding: 0, -1, -1. Integers only. Bytes: 8 per row, 20 per draw.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct AcceptChainParams {
  TensorView<const int32_t, 1> first_row;  // [num_draws + 1] logit rows of each draw, ascending
  TensorView<const int32_t, 1> drafts;     // [num_logit_rows] what the row verifies; -1: nothing
  TensorView<const int32_t, 1> drawn;      // [num_logit_rows]
  TensorView<const int32_t, 1> positions;  // [num_draws] that the draw's first row draws
  TensorView<int32_t, 1> num_accepted;     // out: [num_draws]
  TensorView<int32_t, 1> newest;           // out: [num_draws] the next anchor
  TensorView<int32_t, 1> newest_position;  // out: [num_draws]
};
void launch_accept_chain(const AcceptChainParams& params, Stream stream);
void accept_chain_ref(const AcceptChainParams& params);

}  // namespace dhs
