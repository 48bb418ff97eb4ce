#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/sampling/sampling.h"

namespace dhs {
namespace {

// How many of the sorted logits the filters keep; `p` gets their probabilities after top_k.
size_t num_kept(const RowSampling& row, const std::vector<double>& sorted, std::vector<double>& p) {
  const size_t k = row.top_k > 0 ? std::min<size_t>(row.top_k, sorted.size()) : sorted.size();
  for (size_t i = 0; i < k; ++i) p.push_back(std::exp((sorted[i] - sorted[0]) / row.temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  size_t kept = 0;
  double reached = 0;
  while (kept < k && p[kept] >= row.min_p * p[0] && (row.top_p >= 1 || reached < row.top_p)) {
    reached += p[kept++];
  }
  return kept;
}

}  // namespace

void sampling_ref(const BatchSamplingParams& params) {
  for (int64_t r = 0; r < params.logits.sizes[0]; ++r) {
    const RowSampling& row = params.rows(r);
    std::vector<double> logits(params.logits.row(r), params.logits.row(r) + params.logits.sizes[1]);
    const double infinity = std::numeric_limits<double>::infinity();
    for (int32_t i = 0; i < row.num_masked_tokens; ++i) logits[row.masked_tokens[i]] = -infinity;
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    std::vector<double> sorted, p;
    for (int32_t token : order) sorted.push_back(logits[token]);
    double total = 0;
    for (double value : sorted) total += std::exp(value - sorted[0]);
    size_t drawn = 0;
    if (row.temperature > 0) {
      const size_t kept = num_kept(row, sorted, p);
      const double mass = std::accumulate(p.begin(), p.begin() + kept, 0.0);
      const double target = uniform(row.seed, row.sequence_idx, row.position) * mass;
      for (double sum = p[0]; sum < target && drawn + 1 < kept; sum += p[drawn]) ++drawn;
    }
    params.tokens(r) = order[drawn];
    auto logprob = [&](size_t i) { return float(sorted[i] - sorted[0] - std::log(total)); };
    params.logprobs(r) = logprob(drawn);
    for (int64_t i = 0; i < params.top_tokens.sizes[1]; ++i) {
      const bool has = i < row.num_logprobs && i < int64_t(order.size()) && sorted[i] > -infinity;
      params.top_tokens(r, i) = has ? order[i] : -1;
      params.top_logprobs(r, i) = has ? logprob(i) : 0.0f;
    }
  }
}

}  // namespace dhs
