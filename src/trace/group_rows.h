// The rows of one request that an index group may draw, by recency, and the drawing of one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dhisparse/trace.h"
#include "trace/depth_law.h"
#include "trace/recency_stack.h"

namespace dhs::trace {

class GroupRows {
 public:
  // As the most recent row, in use since `since` (a step; any scale that rises).
  void add(int32_t row, int32_t since);
  void remove(int32_t row) { stack_.erase(row); }
  std::vector<int32_t> by_recency() const;

  struct Step {
    int32_t number = 0;
    double multiplier = 1;  // the group's times the shift's
    uint64_t key = 0;       // of its random numbers
    std::span<const int32_t> nominees;
  };
  // Draws the step's rows, by rising depth, and puts them on top.
  const std::vector<int32_t>& draw(const SelectionModel& model, const Step& step);

 private:
  // Depths [low, high), of which the stack's num_drawn rows give one.
  struct Stratum {
    int64_t index;
    int64_t low;
    double first, last;  // what random candidates are spread over
  };
  void locate(std::span<const int32_t> nominees);
  int64_t choose(const Stratum& stratum, uint64_t key, int32_t num_candidates) const;
  int32_t since(int64_t depth) const;

  RecencyStack stack_;
  std::vector<int32_t> since_;      // by position: the step in which it last came back from far
  std::vector<int64_t> nominated_;  // depths of the step's nominees, rising
  std::vector<int32_t> drawn_;      // of the latest step, by rising depth
};

}  // namespace dhs::trace
