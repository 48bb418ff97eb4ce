#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/sampling/sampling.h"

namespace dhs {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RefRow {
  std::vector<int32_t> order;  // tokens, the likeliest first
  std::vector<double> sorted;  // their logits
  double log_total = 0;        // of exp(logit - the largest)
};

RefRow sort_row(const BatchSamplingParams& params, int64_t r) {
  const RowSampling& row = params.rows(r);
  std::vector<double> logits(params.logits.row(r), params.logits.row(r) + params.logits.sizes[1]);
  for (int32_t i = 0; i < row.num_adjustments; ++i) {
    double& logit = logits[row.adjustments[i].token];
    logit = adjusted_logit(static_cast<float>(logit), row.adjustments[i]);
  }
  for (int32_t i = 0; i < row.num_masked_tokens; ++i) logits[row.masked_tokens[i]] = -kInfinity;
  RefRow made;
  made.order.resize(logits.size());
  std::iota(made.order.begin(), made.order.end(), 0);
  std::stable_sort(made.order.begin(), made.order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (int32_t token : made.order) made.sorted.push_back(logits[token]);
  double total = 0;
  for (double value : made.sorted) total += std::exp(value - made.sorted[0]);
  made.log_total = std::log(total);
  return made;
}

// What the filters keep, by place in the order; sums to 1.
std::vector<double> kept_probabilities(const RowSampling& row, const std::vector<double>& sorted) {
  const size_t k = row.top_k > 0 ? std::min<size_t>(row.top_k, sorted.size()) : sorted.size();
  std::vector<double> p;
  for (size_t i = 0; i < k; ++i) p.push_back(std::exp((sorted[i] - sorted[0]) / row.temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  size_t kept = 0;
  double reached = 0;
  while (kept < k && p[kept] >= row.min_p * p[0] && (row.top_p >= 1 || reached < row.top_p)) {
    reached += p[kept++];
  }
  p.resize(kept);
  for (double& value : p) value /= reached;
  return p;
}

// The first entry of `mass` at which its sum reaches u of the whole.
size_t invert(const std::vector<double>& mass, double u) {
  const double target = u * std::accumulate(mass.begin(), mass.end(), 0.0);
  size_t found = 0;
  double sum = 0;
  for (size_t i = 0; i < mass.size(); ++i) {
    if (mass[i] > 0 && (sum < target || sum == 0)) found = i;
    sum += mass[i];
  }
  return found;
}

int32_t verify(const RowSampling& row, const std::vector<double>& p, double u) {
  std::vector<double> q(p.size());
  for (int32_t i = 0; i < row.num_proposed; ++i) {
    q[row.proposed_tokens != nullptr ? row.proposed_tokens[i] : i] = row.proposed_probabilities[i];
  }
  const int32_t draft = row.draft_token;
  const double u_accept = uniform(row.seed, row.sequence_idx + kAcceptStream, row.position);
  if (u_accept * std::clamp<double>(q[draft], kLeastProposed, 1) < p[draft]) return draft;
  std::vector<double> residual, others = p;
  others[draft] = 0;
  for (size_t i = 0; i < p.size(); ++i) residual.push_back(std::max(others[i] - q[i], 0.0));
  const double mass = std::accumulate(residual.begin(), residual.end(), 0.0);
  return static_cast<int32_t>(invert(mass > kLeastResidual ? residual : others, u));
}

size_t draw_place(const RowSampling& row, const RefRow& sorted) {
  const std::vector<double> p = kept_probabilities(row, sorted.sorted);
  const double u = uniform(row.seed, row.sequence_idx + kDrawStream, row.position);
  if (!has_proposal(row)) return invert(p, u);
  std::vector<double> by_token(sorted.order.size());
  for (size_t i = 0; i < p.size(); ++i) by_token[sorted.order[i]] = p[i];
  const int32_t token = verify(row, by_token, u);
  return std::find(sorted.order.begin(), sorted.order.end(), token) - sorted.order.begin();
}

}  // namespace

void sampling_ref(const BatchSamplingParams& params) {
  for (int64_t r = 0; r < params.logits.sizes[0]; ++r) {
    const RowSampling& row = params.rows(r);
    const RefRow sorted = sort_row(params, r);
    auto logprob = [&](size_t i) {
      return float(sorted.sorted[i] - sorted.sorted[0] - sorted.log_total);
    };
    const size_t drawn = row.temperature > 0 ? draw_place(row, sorted) : 0;
    params.tokens(r) = sorted.order[drawn];
    params.logprobs(r) = logprob(drawn);
    for (int64_t i = 0; i < params.top_tokens.sizes[1]; ++i) {
      const bool has = i < row.num_logprobs && i < int64_t(sorted.order.size()) &&
                       sorted.sorted[static_cast<size_t>(i)] > -kInfinity;
      params.top_tokens(r, i) = has ? sorted.order[i] : -1;
      params.top_logprobs(r, i) = has ? logprob(i) : 0.0f;
    }
  }
}

}  // namespace dhs
