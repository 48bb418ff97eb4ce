#include "scheduler/row_cost.h"

#include <algorithm>
#include <cmath>

namespace dhs {
namespace {

constexpr double kMemory = 0.98;  // what a step leaves of those before it
// Changes of a term below this size tell nothing: of rows and prompt tokens as a share of their
// means, of proposing as it is.
constexpr double kLeastShare = 0.03;
constexpr double kFewestSteps = 6;
// A step that takes so many times what was expected, or the inverse, is cut to that.
constexpr double kOutlier = 3;

// Solves m * x = v. m: symmetric and positive definite.
std::array<double, 3> solve(std::array<std::array<double, 3>, 3> m, std::array<double, 3> v) {
  for (int i = 0; i < 3; ++i) {
    for (int r = i + 1; r < 3; ++r) {
      const double factor = m[r][i] / m[i][i];
      for (int c = i; c < 3; ++c) m[r][c] -= factor * m[i][c];
      v[r] -= factor * v[i];
    }
  }
  std::array<double, 3> x = {};
  for (int i = 2; i >= 0; --i) {
    double left = v[i];
    for (int c = i + 1; c < 3; ++c) left -= m[i][c] * x[c];
    x[i] = left / m[i][i];
  }
  return x;
}

}  // namespace

// The spread, and in every term as much as changes too small to count would have.
RowCost::Square RowCost::stabilised() const {
  Square sums = spread_;
  for (int i = 0; i < 3; ++i) {
    const double least = i == 2 ? kLeastShare : kLeastShare * (means_[i] + 1);
    sums[i][i] += weight_ * least * least;
  }
  return sums;
}

double RowCost::expected_s(const Terms& terms) const {
  double seconds = mean_s_;
  for (int i = 0; i < 3; ++i) seconds += slopes_[i] * (terms[i] - means_[i]);
  return seconds;
}

void RowCost::observe(const Step& step, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds <= 0) return;
  const Terms terms = {static_cast<double>(step.num_rows), static_cast<double>(step.prompt_tokens),
                       step.is_proposing ? 1.0 : 0.0};
  double beside = seconds - step.fetch_s;
  if (weight_ > kFewestSteps) {
    const double expected = std::max(expected_s(terms) + step.fetch_s, mean_s_ / kOutlier);
    beside = std::clamp(seconds, expected / kOutlier, expected * kOutlier) - step.fetch_s;
  }
  learn(terms, beside);
  mean_fetch_s_ += (step.fetch_s - mean_fetch_s_) / weight_;
}

void RowCost::learn(const Terms& terms, double seconds) {
  weight_ = kMemory * weight_ + 1;
  Terms before = {};
  for (int i = 0; i < 3; ++i) {
    before[i] = terms[i] - means_[i];
    means_[i] += before[i] / weight_;
  }
  mean_s_ += (seconds - mean_s_) / weight_;
  for (int i = 0; i < 3; ++i) {
    joint_[i] = kMemory * joint_[i] + before[i] * (seconds - mean_s_);
    for (int j = 0; j < 3; ++j) {
      spread_[i][j] = kMemory * spread_[i][j] + before[i] * (terms[j] - means_[j]);
    }
  }
  Terms error = joint_;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) error[i] -= spread_[i][j] * slopes_[j];
  }
  const Square sums = stabilised();
  const Terms change = solve(sums, error);
  for (int i = 0; i < 3; ++i) slopes_[i] += change[i];
  // What of the rows' spread the other terms do not explain.
  const double alone = 1 / solve(sums, {1, 0, 0})[0];
  const double least = kLeastShare * (means_[0] + 1);
  is_known_ = is_known_ || (weight_ >= kFewestSteps && alone > 4 * weight_ * least * least);
}

}  // namespace dhs
