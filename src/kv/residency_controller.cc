#include "kv/residency_controller.h"

#include <algorithm>
#include <cmath>

namespace dhs {
namespace {

// Of the latest step in a moving average.
constexpr double kStepShare = 1.0 / 8;
constexpr double kRequiredShare = 1.0 / 16;

// Weights wait for this much to go by.
constexpr absl::Duration kWeightsEvery = absl::Seconds(1);
constexpr int64_t kFewestSteps = 16;
constexpr int64_t kFewestMisses = 256;
// And no group gets less than this share of the largest.
constexpr double kLeastWeight = 1.0 / 32;

void follow(double value, double share, double& average) { average += share * (value - average); }

}  // namespace

ResidencyController::ResidencyController(const KvGeometry& geometry, const KvCapacity& capacity,
                                         const ResidencyConfig& config)
    : geometry_(geometry),
      chunk_bytes_(capacity.chunk_bytes),
      link_bytes_per_s_(static_cast<double>(capacity.link_bytes_per_s)),
      config_(config),
      weights_(geometry.groups.size(), 1.0),
      sums_(geometry.groups.size()),
      resident_rows_(geometry.groups.size()) {}

void ResidencyController::observe(std::span<const GroupTraffic> groups, absl::Duration elapsed) {
  if (groups.empty()) return;
  DHS_CHECK(groups.size() == sums_.size(), groups.size(), " index groups instead of ",
            sums_.size());
  double fetched_bytes = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    sums_[g].missed += groups[g].rows_missed;
    sums_[g].resident += groups[g].rows_resident;
    resident_rows_[g] = groups[g].rows_resident;
    fetched_bytes += static_cast<double>(groups[g].rows_missed * geometry_.groups[g].record_bytes);
  }
  ++num_observed_;
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds <= 0) return;
  if (step_s_ == 0) {
    step_s_ = seconds;
    fetched_bytes_ = fetched_bytes;
  }
  follow(seconds, kStepShare, step_s_);
  follow(fetched_bytes, kStepShare, fetched_bytes_);
}

void ResidencyController::begin_step(absl::Time now, int64_t required_chunks, bool was_pressed) {
  now_ = now;
  const int64_t more = std::max<int64_t>(0, required_chunks - required_chunks_);
  follow(static_cast<double>(more), kRequiredShare, new_required_);
  required_chunks_ = required_chunks;
  if (was_pressed) pressed_at_ = now;
  if (now - weights_since_ >= kWeightsEvery && num_observed_ >= kFewestSteps) set_weights();
}

int64_t ResidencyController::headroom_chunks() const {
  return static_cast<int64_t>(std::ceil(config_.headroom_steps * new_required_ - 1e-3));
}

bool ResidencyController::is_worth_it() const {
  if (link_bytes_per_s_ == 0 || step_s_ == 0) return true;
  return fetched_bytes_ / link_bytes_per_s_ >= config_.grow_worth * step_s_;
}

bool ResidencyController::may_grow() const {
  return now_ - pressed_at_ >= config_.grow_delay && is_worth_it();
}

// Of a step; not known without the link's speed and the step's time.
double ResidencyController::growth_bytes() const {
  return config_.grow_link_share * link_bytes_per_s_ * step_s_;
}

int64_t ResidencyController::growth_chunks() const {
  if (!may_grow()) return 0;
  if (link_bytes_per_s_ == 0 || step_s_ == 0) return INT64_MAX;
  const double chunks = growth_bytes() / static_cast<double>(chunk_bytes_);
  return std::max<int64_t>(1, static_cast<int64_t>(chunks));
}

int64_t ResidencyController::floor_rows(int64_t num_requests) const {
  return is_worth_it() ? kFloorSelections * geometry_.top_k * num_requests : 0;
}

// What may be fetched goes to the groups in proportion to the bytes that they have free.
std::vector<int64_t> ResidencyController::refill_rows(
    std::span<const int64_t> capacity_rows) const {
  const double most_bytes = growth_bytes();
  if (!may_grow() || most_bytes == 0) return {};
  std::vector<int64_t> rows;
  double free_bytes = 0;
  for (size_t g = 0; g < capacity_rows.size(); ++g) {
    rows.push_back(std::max<int64_t>(0, capacity_rows[g] - resident_rows_[g]));
    free_bytes += static_cast<double>(rows[g] * geometry_.groups[g].record_bytes);
  }
  const double share = std::min(1.0, most_bytes / free_bytes);
  for (int64_t& count : rows) count = static_cast<int64_t>(share * static_cast<double>(count));
  return rows;
}

// A group that missed nothing says nothing of its m: it keeps its weight among the others. They go
// half the way to what was measured, in logarithms: a second's misses are a sample.
void ResidencyController::set_weights() {
  int64_t num_missed = 0;
  for (const Sums& sums : sums_) num_missed += sums.missed;
  if (num_missed < kFewestMisses) return;
  std::vector<double> measured(sums_.size());  // 0: nothing was
  double before = 0;
  double after = 0;
  for (size_t g = 0; g < sums_.size(); ++g) {
    if (sums_[g].missed == 0) continue;
    const double rows = static_cast<double>(sums_[g].resident) / static_cast<double>(num_observed_);
    const double m = static_cast<double>(sums_[g].missed) * std::pow(rows, kMissPower);
    measured[g] = std::pow(m, 1 / (1 + kMissPower));
    before += weights_[g];
    after += measured[g];
  }
  for (size_t g = 0; g < sums_.size(); ++g) {
    if (measured[g] > 0) weights_[g] = std::sqrt(weights_[g] * measured[g] * before / after);
  }
  const double largest = *std::max_element(weights_.begin(), weights_.end());
  for (double& weight : weights_) weight = std::max(kLeastWeight, weight / largest);
  sums_.assign(sums_.size(), {});
  num_observed_ = 0;
  weights_since_ = now_;
}

}  // namespace dhs
