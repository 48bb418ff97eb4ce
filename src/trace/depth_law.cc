#include "trace/depth_law.h"

#include <algorithm>

namespace dhs::trace {
namespace {

using CurvePoint = SelectionModel::CurvePoint;

double share_at(std::span<const CurvePoint> curve, double rows) {
  const auto below = std::lower_bound(curve.begin(), curve.end(), rows,
                                      [](const CurvePoint& p, double r) { return p.rows < r; });
  if (below == curve.begin()) return below->share;
  if (below == curve.end()) return curve.back().share;
  const CurvePoint& above = *(below - 1);
  const double part = (rows - above.rows) / (below->rows - above.rows);
  return above.share + part * (below->share - above.share);
}

}  // namespace

DepthLaw::DepthLaw(const SelectionModel& model, double multiplier, int64_t num_drawable)
    : model_(model),
      multiplier_(multiplier),
      num_fixed_(model.profile().num_recent + model.profile().num_sinks),
      num_drawable_(static_cast<double>(num_drawable)) {
  share_at_end_ = share_at(model.curve(), num_drawable_ + num_fixed_);
  below_ = point_at(next_++);
}

// What lies beyond the end of the context is taken off linearly, so that nothing does.
double DepthLaw::survival_of(const CurvePoint& point) const {
  const double beyond_end = share_at_end_ * point.rows / (num_drawable_ + num_fixed_);
  return std::clamp(multiplier_ * (point.share - beyond_end), 0.0, 1.0);
}

DepthLaw::Point DepthLaw::point_at(size_t index) const {
  const std::span<const CurvePoint> curve = model_.curve();
  if (index == curve.size() || curve[index].rows - num_fixed_ >= num_drawable_) {
    return {num_drawable_, 0};
  }
  return {curve[index].rows - num_fixed_, survival_of(curve[index])};
}

double DepthLaw::depth_at(double survival) {
  while (below_.survival >= survival && below_.depth < num_drawable_) {
    above_ = below_;
    below_ = point_at(next_++);
  }
  if (below_.survival >= above_.survival) return below_.depth;
  const double part = (above_.survival - survival) / (above_.survival - below_.survival);
  return above_.depth + std::max(0.0, part) * (below_.depth - above_.depth);
}

}  // namespace dhs::trace
