// feed_tokens: tokens that the previous step drew, which the host does not know yet.
//
//   tokens[i] = drawn[draw_of_row[i]]        where draw_of_row[i] >= 0; other rows keep theirs
//
// So a step can be queued before the results of the one before it have come back. Bytes: 12 per
// row.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct FeedTokensParams {
  TensorView<const int32_t, 1> drawn;        // [max_num_draws]
  TensorView<const int32_t, 1> draw_of_row;  // [num_rows], -1: the row's token is known
  TensorView<int32_t, 1> tokens;             // in/out: [num_rows]
};
void launch_feed_tokens(const FeedTokensParams& params, Stream stream);

}  // namespace dhs
