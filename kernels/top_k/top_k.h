// top_k: the exact k best positions of each query row.
//
// selection[t] = the min(k, visible[t]) positions s < visible[t] with the largest score[t, s]; of
// equal scores the lowest positions win. Written in ascending order of position, then padded with
// -1. -0.0 equals +0.0 and any NaN counts as -infinity. A set and its order are fully determined by
// the scores, so later sums over the selection are too. The last axes are contiguous. Cost:
// O(visible) (radix select), no sort of scores; on CUDA 16 bytes per visible score, in four reads,
// and a grid that depends on the number of rows and the width of `scores` only.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

struct TopKParams {
  TensorView<const float, 2> scores;     // [num_query_rows, >= max visible]
  TensorView<const int32_t, 1> visible;  // [num_query_rows]
  TensorView<int32_t, 2> selection;      // out: [num_query_rows, k]
};

void launch_top_k(const TopKParams& params, Stream stream);
void top_k_ref(const TopKParams& params);

}  // namespace dhs
