// candidates: the K largest logits of each row and their tokens.
//
//   values[i, :], tokens[i, :] = the K largest of logits[i, :], descending, ties to the lowest id
//   value of a logit: cap * tanh(multiplier * logit / cap);  softcap 0: multiplier * logit
//
// The order is that of the logits, so that logits which the cap makes equal keep theirs. NaN counts
// as -inf, +inf as the largest float, -0 as 0. A row's bits depend on its logits only. Values in
// f32, tanh in f64 rounded to f32. Rows may be strided, columns are contiguous. 1 <= K <= min(64,
// vocab).
//
// Cost: one pass over the logits on the CPU, three on CUDA (one from device memory, two from L2): 4
// bytes and a few operations per logit each; no sort of a row.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int64_t kMaxCandidates = 64;

struct CandidatesParams {
  TensorView<const float, 2> logits;  // [num_rows, vocab]
  float multiplier = 1;               // > 0
  float softcap = 0;                  // >= 0
  TensorView<float, 2> values;        // out: [num_rows, K]
  TensorView<int32_t, 2> tokens;      // out: [num_rows, K]
};
void launch_candidates(const CandidatesParams& params, Stream stream);
void candidates_ref(const CandidatesParams& params);

}  // namespace dhs
