// Where in a group's stack the drawn rows of one step lie: the survival function of their depth,
// cut at 1 and at the end of the context, read from top to bottom.
//
// Depths count drawable rows only: recent rows and sinks are selected in every step, so all of them
// lie above in the full stack, and depth d here is depth d + num_recent + num_sinks there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dhisparse/trace.h"

namespace dhs::trace {

class DepthLaw {
 public:
  // multiplier: the group's times the shift's. num_drawable: rows of the stack. `model` must
  // outlive it.
  DepthLaw(const SelectionModel& model, double multiplier, int64_t num_drawable);

  // The depth beyond which a share `survival` of the drawn rows lies; of 1, the largest such depth.
  // Shares must not rise from call to call; all calls together cost O(points of the curve).
  double depth_at(double survival);

 private:
  struct Point {
    double depth;
    double survival;
  };
  double survival_of(const SelectionModel::CurvePoint& point) const;
  Point point_at(size_t index) const;

  const SelectionModel& model_;
  const double multiplier_;
  const double num_fixed_;  // rows above the stack
  const double num_drawable_;
  double share_at_end_ = 0;  // of the curve, where the context ends
  Point above_ = {0, 1};
  Point below_;
  size_t next_ = 0;  // point of the curve behind below_
};

}  // namespace dhs::trace
