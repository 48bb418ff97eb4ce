#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/candidate_walk/candidate_walk.h"
#include "kernels/sampling/sampling.h"

namespace dhs {
namespace {

double codebook_value(const CandidateWalkParams& params, const void* codebook, int64_t i) {
  if (params.codebook_dtype == DType::kF32) return static_cast<const float*>(codebook)[i];
  return bf16_to_f32(static_cast<const Bf16*>(codebook)[i]);
}

std::vector<double> edge_scores(const CandidateWalkParams& params, int64_t row, int64_t previous) {
  const int64_t rank = params.hidden.sizes[1];
  std::vector<double> scores;
  for (int64_t c = 0; c < params.values.sizes[1]; ++c) {
    double dot = 0;
    for (int64_t r = 0; r < rank; ++r) {
      dot += codebook_value(params, params.predecessor, previous * rank + r) *
             params.hidden(row, r) *
             codebook_value(params, params.successor, params.tokens(row, c) * rank + r);
    }
    const auto score = static_cast<float>(params.values(row, c) + dot);
    const float largest = std::numeric_limits<float>::max();
    scores.push_back(std::isnan(score) ? -INFINITY : std::min(score, largest));
  }
  return scores;
}

std::vector<double> softmax_of(const std::vector<double>& scores, double temperature) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  double sum = 0;
  for (double score : scores) {
    weights.push_back(std::exp((score - largest) / temperature));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// One row after `previous`: writes q and the confidence, returns the place of its choice.
size_t walk_row(const CandidateWalkParams& params, int64_t b, int64_t d, int64_t previous) {
  const int64_t row = b * params.drafts.sizes[1] + d;
  const ProposalSampling& sampling = params.sampling(b);
  const std::vector<double> scores = edge_scores(params, row, previous);
  const auto best = std::max_element(scores.begin(), scores.end());
  const bool has_finite = *best > -INFINITY;
  auto chosen = static_cast<size_t>(best - scores.begin());
  params.confidence(b, d) = has_finite ? float(softmax_of(scores, 1)[chosen]) : 0.0f;
  std::vector<double> q(scores.size());
  q[chosen] = 1;
  if (has_finite && sampling.temperature > 0) {
    q = softmax_of(scores, sampling.temperature);
    const auto position = sampling.position + static_cast<uint32_t>(d);
    const double u = uniform(sampling.seed, kDraftStream, position);
    double sum = q[chosen = 0];
    while (sum <= u && chosen + 1 < q.size()) sum += q[++chosen];
  }
  for (size_t c = 0; c < q.size(); ++c) params.probabilities(row, c) = float(q[c]);
  return chosen;
}

void write_nothing(const CandidateWalkParams& params, int64_t b, int64_t d) {
  const int64_t row = b * params.drafts.sizes[1] + d;
  params.drafts(b, d) = -1;
  params.confidence(b, d) = 0;
  for (int64_t c = 0; c < params.values.sizes[1]; ++c) params.probabilities(row, c) = 0;
}

}  // namespace

void candidate_walk_ref(const CandidateWalkParams& params) {
  for (int64_t b = 0; b < params.drafts.sizes[0]; ++b) {
    int64_t previous = params.anchors(b);
    for (int64_t d = 0; d < params.drafts.sizes[1]; ++d) {
      if (previous < 0) {
        write_nothing(params, b, d);
        continue;
      }
      const size_t chosen = walk_row(params, b, d, previous);
      previous = params.drafts(b, d) = params.tokens(b * params.drafts.sizes[1] + d, chosen);
    }
  }
}

}  // namespace dhs
