// candidate_walk: picks one candidate of each row of a draft block, left to right, by how well it
// follows the one before it (DFlash2's candidate selector).
//
//   S_d[c] = values[d, c] +
//            sum_r predecessor[prev_d, r] * hidden[d, r] * successor[tokens[d, c], r]
//   prev_1 = the block's anchor;  prev_{d+1} = the token that row d picks
//   temperature 0: the largest S_d (ties: the first of the list), q one-hot on it
//   otherwise: q = softmax(S_d / temperature) over the list, drawn by inverting its sum in the
//   order of the list at u = uniform(seed, kDraftStream, position + d - 1)
//   confidence of row d: the largest of softmax(S_d), at temperature 1 always. It depends on the
//   tokens before d only, not on what d draws.
//
// A greedy walk: it does not look for the best path. Products and sums in f64, S rounded to f32,
// exponentials and their sums in f64, in the order of the list; q and confidence rounded to f32. A
// block's bits depend on its own data only. S that is NaN counts as -inf, +inf as the largest
// float; a list with nothing finite gives its first token with q one-hot and confidence 0. A block
// whose anchor is negative is padding: tokens -1, q and confidence 0.
//
// 1 <= K <= 64. Cost of a row: (K + 1) * rank codebook elements and 2 * K * rank FLOPs; the rows of
// a block follow each other. CUDA: one thread block per draft block, rank at most 4096.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

inline constexpr int64_t kMaxWalkCandidates = 64;

// How one request's draft tokens are drawn.
struct ProposalSampling {
  float temperature = 0.0f;  // >= 0, finite
  uint64_t seed = 0;
  uint32_t position = 0;  // of the first proposal
};

struct CandidateWalkParams {
  // Row b * G + d - 1 is row d of block b.
  TensorView<const float, 2> values;               // [num_blocks * G, K], best first
  TensorView<const int32_t, 2> tokens;             // [num_blocks * G, K]
  TensorView<const float, 2> hidden;               // [num_blocks * G, rank]
  DType codebook_dtype = DType::kF32;              // kF32 or kBf16
  const void* predecessor = nullptr;               // [vocab, rank], dense
  const void* successor = nullptr;                 // [vocab, rank], dense
  TensorView<const int32_t, 1> anchors;            // [num_blocks] tokens
  TensorView<const ProposalSampling, 1> sampling;  // [num_blocks]
  TensorView<int32_t, 2> drafts;                   // out: [num_blocks, G]
  TensorView<float, 2> probabilities;              // out: [num_blocks * G, K] q of `tokens`
  TensorView<float, 2> confidence;                 // out: [num_blocks, G]
};
void launch_candidate_walk(const CandidateWalkParams& params, Stream stream);
void candidate_walk_ref(const CandidateWalkParams& params);

}  // namespace dhs
