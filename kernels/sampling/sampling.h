// sampling: the next token of each row from its logits.
//
// Order: adjustments -> token masks (-inf) -> greedy when temperature == 0 (largest logit, ties to
// the lowest id) -> divide by temperature -> top_k -> softmax -> top_p -> min_p -> draw.
//   adjustments: logit = (logit > 0 ? logit / scale : logit * scale) + bias, each operation in f32.
//   top_k: keep the k largest (0: all), ties at the cut to the lowest id.
//   top_p: keep the shortest prefix, in descending order, whose sum reaches top_p (1: off).
//   min_p: keep tokens with probability >= min_p * the largest probability.
// Descending order is by logit, ties to the lowest id; every filter keeps a prefix of it. The draw
// inverts the cumulative sum over the kept prefix at u = uniform(seed, sequence_idx, position).
// Exponentials in f32 (relative error 2e-7), sums in f64 (CUDA: in integers of 2^-41, which need no
// order). u is a counter-based hash (Philox4x32-10), so a draw depends on its row and key only: not
// on the batch, the step, preemption or threads. logprob reports log softmax of the logits after
// adjustments and masks, before temperature and filters.
//
// A row may verify a draft token d that was drawn from a proposal distribution q. With p what the
// filters keep of the softmax, normalised: d is returned when u' * q(d) < p(d), with u' from the
// accept stream and q(d) taken as at least 1e-8; otherwise a draw from max(p - q, 0) without d,
// normalised (from p without d where its mass is at most 1e-8), by inverting the sum in the order
// of token ids at the same u as a plain draw. So the token has distribution p when d has
// distribution q, and it equals d exactly when d is accepted (Leviathan et al., arXiv 2211.17192).
// A draft token that was chosen, not drawn (num_proposed 0), and a greedy row need none of this: a
// plain draw verifies it.
//
// Any logits are legal: NaN counts as -inf, +inf as the largest float. A row that leaves nothing to
// draw (everything masked or NaN) gives token 0 with logprob -inf. Zero rows are legal.
// Cost: a few passes over the vocabulary, no sort: a histogram over the leading bits of the logits
// finds the few tokens near a cut, and only those are sorted. Scratch per thread of the CPU
// version: 8 bytes per vocabulary entry and 768 KiB. The CUDA version takes vocabularies of at most
// 2^18 tokens and lists at most 1024 top tokens.
#pragma once

#include "dhisparse/stream.h"
#include "dhisparse/tensor.h"

namespace dhs {

// What a row changes in the logit of one token.
struct LogitAdjustment {
  int32_t token = 0;
  float scale = 1;  // > 0, finite
  float bias = 0;   // finite
};
// NaN stays NaN, -inf stays -inf.
constexpr float adjusted_logit(float logit, const LogitAdjustment& by) {
  const float scaled = logit > 0 ? logit / by.scale : logit * by.scale;
  return scaled + by.bias;
}

struct RowSampling {         // what one row asks for; validated above
  float temperature = 0.0f;  // >= 0, finite
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1]
  int32_t top_k = 0;         // 0: off
  uint64_t seed = 0;
  uint32_t sequence_idx = 0;
  uint32_t position = 0;     // of the token being drawn
  int32_t num_logprobs = 0;  // alternatives wanted beside the drawn token
  // Tokens that may not be drawn (min_tokens masks EOS), in the memory that the logits are in.
  const int32_t* masked_tokens = nullptr;
  int32_t num_masked_tokens = 0;
  // Adjustments in rising order of token, each token once, in the memory that the logits are in.
  const LogitAdjustment* adjustments = nullptr;
  int32_t num_adjustments = 0;
  // What the row verifies: a draft token (-1: none; < vocab_size) and the distribution that it was
  // drawn from. num_proposed 0: the draft token was chosen, not drawn.
  int32_t draft_token = -1;
  int32_t num_proposed = 0;  // entries of the two arrays, in the memory that the logits are in
  const int32_t* proposed_tokens = nullptr;  // distinct; null: entry i is token i, for all tokens
  const float* proposed_probabilities = nullptr;  // >= 0, sum to 1
};

// Streams of uniform draws of one seed: added to sequence_idx.
inline constexpr uint32_t kDrawStream = 0;      // draws of the target, also of a residual
inline constexpr uint32_t kAcceptStream = 1;    // whether a draft token is accepted
inline constexpr uint32_t kDraftStream = 2;     // draws of a draft
inline constexpr float kLeastProposed = 1e-8f;  // what q of a draft token counts as at least
inline constexpr double kLeastResidual = 1e-8;  // a residual of no more mass is not drawn from

// Whether the row's draft token takes more than a plain draw to verify.
constexpr bool has_proposal(const RowSampling& row) {
  return row.temperature > 0 && row.draft_token >= 0 && row.num_proposed > 0;
}

struct BatchSamplingParams {
  TensorView<const float, 2> logits;      // [num_rows, vocab_size], columns contiguous
  TensorView<const RowSampling, 1> rows;  // [num_rows]
  TensorView<int32_t, 1> tokens;          // out: [num_rows]
  TensorView<float, 1> logprobs;          // out: [num_rows] of the drawn token
  // out: [num_rows, max num_logprobs], the likeliest first, ties to the lowest id. Padded with
  // token -1 and logprob 0 beyond a row's num_logprobs and beyond the tokens that can be drawn.
  TensorView<int32_t, 2> top_tokens;
  TensorView<float, 2> top_logprobs;
};
void launch_sampling(const BatchSamplingParams& params, Stream stream);
// Sorts everything and computes in f64. Draws agree unless u falls within 1e-6 of a boundary.
void sampling_ref(const BatchSamplingParams& params);

// Uniform in [0, 1), 32 bits of resolution, from the counter above.
double uniform(uint64_t seed, uint32_t sequence_idx, uint32_t position);

}  // namespace dhs
