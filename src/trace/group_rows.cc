#include "trace/group_rows.h"

#include <algorithm>

#include "dhisparse/counter_random.h"

namespace dhs::trace {
namespace {

// A row that comes back from beyond this many rows begins to be in use anew. 2k rows: the cache for
// which policies were measured.
int64_t far_depth(const SelectionProfile& profile) { return 2 * int64_t{profile.top_k}; }

}  // namespace

void GroupRows::add(int32_t row, int32_t since) {
  if (row >= std::ssize(since_)) since_.resize(row + row / 8 + 64);
  since_[row] = since;
  stack_.touch(row);
}

std::vector<int32_t> GroupRows::by_recency() const {
  std::vector<int32_t> rows(stack_.size());
  for (int64_t depth = 0; depth < stack_.size(); ++depth) rows[depth] = stack_.at(depth);
  return rows;
}

void GroupRows::locate(std::span<const int32_t> nominees) {
  nominated_.clear();
  for (int32_t row : nominees) {
    if (const auto depth = stack_.depth_of(row)) nominated_.push_back(*depth);
  }
  std::sort(nominated_.begin(), nominated_.end());
}

int32_t GroupRows::since(int64_t depth) const { return since_[stack_.at(depth)]; }

// Of all rows of a narrow stratum, or of so many random ones of a wide one, the one that has been
// in use for longest.
int64_t GroupRows::choose(const Stratum& stratum, uint64_t key, int32_t num_candidates) const {
  const int64_t width = static_cast<int64_t>(stratum.last) - stratum.low + 1;
  const bool takes_all = num_candidates > 1 && width <= num_candidates;
  const int64_t count = takes_all ? std::max<int64_t>(1, width) : num_candidates;
  int64_t best = 0;
  int32_t best_since = INT32_MAX;
  for (int64_t c = 0; c < count; ++c) {
    int64_t depth = stratum.low + c;
    if (!takes_all) {
      const double part = random_unit(key, static_cast<uint64_t>(stratum.index * count + c));
      depth = static_cast<int64_t>(stratum.first + part * (stratum.last - stratum.first));
    }
    depth = std::clamp(depth, stratum.low, stack_.size() - 1);
    if (count == 1) return depth;
    const int32_t candidate_since = since(depth);
    if (candidate_since >= best_since) continue;
    best = depth;
    best_since = candidate_since;
  }
  return best;
}

const std::vector<int32_t>& GroupRows::draw(const SelectionModel& model, const Step& step) {
  const SelectionProfile& profile = model.profile();
  const int64_t num_drawn = model.num_drawn();
  DHS_CHECK(stack_.size() > num_drawn, num_drawn, " rows to draw from ", stack_.size());
  locate(step.nominees);
  DepthLaw law(model, step.multiplier, stack_.size());
  auto nominee = nominated_.begin();
  int64_t next = 0;  // depths below it are taken or passed
  double first = law.depth_at(1);
  drawn_.clear();
  for (int64_t i = 0; i < num_drawn; ++i) {
    const double last = law.depth_at(1 - static_cast<double>(i + 1) / num_drawn);
    // As many depths left as there are strata.
    const int64_t last_depth = stack_.size() - (num_drawn - i);
    const int64_t low = std::min(std::max(next, static_cast<int64_t>(first)), last_depth);
    while (nominee != nominated_.end() && *nominee < low) ++nominee;
    const bool is_nominee = nominee != nominated_.end() && static_cast<double>(*nominee) < last;
    const int64_t chosen =
        is_nominee ? *nominee : choose({i, low, first, last}, step.key, profile.num_candidates);
    const int64_t depth = std::min(chosen, last_depth);
    const int32_t row = stack_.at(depth);
    if (depth >= far_depth(profile)) since_[row] = step.number;
    drawn_.push_back(row);
    next = depth + 1;
    first = last;
  }
  for (int32_t row : drawn_) stack_.touch(row);
  return drawn_;
}

}  // namespace dhs::trace
