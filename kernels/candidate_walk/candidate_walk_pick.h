// candidate_walk_pick: what a walk makes of the scores of one row, for the CPU and for CUDA, one
// thread. The exponentials come ready: they are the caller's to share out.
#pragma once

#include <cmath>
#include <cstdint>

#include "dhisparse/tensor.h"
#include "kernels/candidate_walk/candidate_walk.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling.h"

namespace dhs {

inline constexpr float kNoScore = -INFINITY;
inline constexpr float kLargestScore = 3.402823466e38f;

// One row of the walk.
struct WalkScores {
  float scores[kMaxWalkCandidates];
  double drawn[kMaxWalkCandidates];  // exp((score - largest) / temperature)
  double plain[kMaxWalkCandidates];  // exp(score - largest)
  int32_t best;                      // the first of the largest scores
};

constexpr float comparable_score(double value) {
  const auto score = static_cast<float>(value);
  if (!(score >= -kLargestScore)) return kNoScore;  // NaN too
  return score > kLargestScore ? kLargestScore : score;
}

constexpr int32_t best_score(const float* scores, int64_t count) {
  int32_t best = 0;
  for (int32_t c = 1; c < count; ++c) best = scores[c] > scores[best] ? c : best;
  return best;
}

constexpr double sum_of(const double* weights, int64_t count) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += weights[c];
  return sum;
}

// The first entry at which the sum of `weights` exceeds u * total.
constexpr int32_t invert_weights(const double* weights, int64_t count, double target) {
  int32_t found = 0;
  double sum = 0;
  for (int32_t c = 0; c < count; ++c) {
    if (weights[c] <= 0) continue;
    found = c;
    sum += weights[c];
    if (sum > target) break;
  }
  return found;
}

// The entry that row d (0-based) of a block picks; writes q and the confidence.
constexpr int32_t pick_candidate(const CandidateWalkParams& params, const WalkScores& row,
                                 int64_t block_idx, int64_t d) {
  const int64_t count = params.values.sizes[1];
  const int64_t row_idx = block_idx * params.drafts.sizes[1] + d;
  const ProposalSampling sampling = params.sampling(block_idx);
  const bool has_finite = row.scores[row.best] > kNoScore;
  params.confidence(block_idx, d) =
      has_finite ? static_cast<float>(1 / sum_of(row.plain, count)) : 0.0f;
  if (!has_finite || sampling.temperature == 0) {
    for (int64_t c = 0; c < count; ++c) {
      params.probabilities(row_idx, c) = c == row.best ? 1.0f : 0.0f;
    }
    return row.best;
  }
  const double total = sum_of(row.drawn, count);
  for (int64_t c = 0; c < count; ++c) {
    params.probabilities(row_idx, c) = static_cast<float>(row.drawn[c] / total);
  }
  const double u =
      philox_uniform(sampling.seed, kDraftStream, sampling.position + static_cast<uint32_t>(d));
  return invert_weights(row.drawn, count, u * total);
}

// A padding block's outputs of row d.
constexpr void write_padding(const CandidateWalkParams& params, int64_t block_idx, int64_t d) {
  const int64_t row_idx = block_idx * params.drafts.sizes[1] + d;
  params.drafts(block_idx, d) = -1;
  params.confidence(block_idx, d) = 0;
  for (int64_t c = 0; c < params.values.sizes[1]; ++c) params.probabilities(row_idx, c) = 0;
}

}  // namespace dhs
