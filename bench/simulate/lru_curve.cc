#include "lru_curve.h"

#include <algorithm>

#include "trace/recency_stack.h"

namespace dhs::bench {

LruCurve::LruCurve(std::span<const trace::Pass> passes, Window window, int64_t granule)
    : granule_(granule) {
  trace::RecencyStack stack;
  for (int64_t step = 0; step < window.last; ++step) {
    const trace::Pass& pass = passes[step];
    const int64_t num_fetched = std::ssize(pass.rows) - pass.num_written;
    for (int64_t i = 0; i < num_fetched && step >= window.first; ++i) {
      count(stack.depth_of(pass.rows[i]));
    }
    for (int32_t row : pass.rows) stack.touch(row);
  }
}

void LruCurve::count(std::optional<int64_t> depth) {
  if (!depth.has_value()) {
    ++num_new_;
    return;
  }
  const auto granule = static_cast<size_t>(*depth / granule_);
  if (granule >= hits_.size()) hits_.resize(granule + 1);
  ++hits_[granule];
}

int64_t LruCurve::missed(int64_t num_granules) const {
  int64_t sum = num_new_;
  for (int64_t i = num_granules; i < std::ssize(hits_); ++i) sum += hits_[i];
  return sum;
}

// Where hits rise, neighbours are taken together until their means fall.
std::vector<double> LruCurve::gains(int64_t first) const {
  struct Run {
    double sum;
    int64_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Run> runs;
  for (int64_t i = first; i < std::ssize(hits_); ++i) {
    runs.push_back({static_cast<double>(hits_[i]), 1});
    while (runs.size() > 1 && runs[runs.size() - 2].mean() < runs.back().mean()) {
      const Run last = runs.back();
      runs.pop_back();
      runs.back().sum += last.sum;
      runs.back().count += last.count;
    }
  }
  std::vector<double> gains;
  for (const Run& run : runs) gains.insert(gains.end(), run.count, run.mean());
  return gains;
}

std::vector<int64_t> water_filled(std::span<const LruCurve> curves, int64_t least,
                                  int64_t num_granules) {
  std::vector<std::vector<double>> gains;
  for (const LruCurve& curve : curves) gains.push_back(curve.gains(least));
  std::vector<int64_t> sizes(curves.size(), least);
  const auto next_gain = [&](size_t i) {
    const auto next = static_cast<size_t>(sizes[i] - least);
    return next < gains[i].size() ? gains[i][next] : 0.0;
  };
  for (int64_t left = num_granules - least * std::ssize(sizes); left > 0; --left) {
    size_t best = 0;
    for (size_t i = 1; i < sizes.size(); ++i) best = next_gain(i) > next_gain(best) ? i : best;
    ++sizes[best];
  }
  return sizes;
}

}  // namespace dhs::bench
