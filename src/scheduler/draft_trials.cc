#include "scheduler/draft_trials.h"

#include <algorithm>
#include <cmath>

namespace dhs {
namespace {

constexpr double kOtherLoad = 0.25;   // by so much the number of requests is another
constexpr double kLoadNewest = 0.05;  // weight of a step's number of requests
constexpr double kOutlier = 2;        // times the median: longer steps are cut to that
constexpr size_t kUsualSteps = 8;
constexpr size_t kRatios = 5;
// What a draw leaves of those before it: of those in trials less, for they are few.
constexpr double kDrawMemory = 0.995;
constexpr double kTrialDrawMemory = 0.98;
constexpr int64_t kPatience = 128;  // steps in which trials are waited for
constexpr int64_t kLongAgo = 8192;  // steps: more than the next trials of each kind take

// An even number: of the two in the middle.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

double mean_without_outliers(const std::vector<double>& seconds) {
  const double most = kOutlier * median(seconds);
  double sum = 0;
  for (double s : seconds) sum += std::min(s, most);
  return sum / static_cast<double>(seconds.size());
}

void append_newest(double value, size_t most, std::vector<double>& values) {
  if (values.size() == most) values.erase(values.begin());
  values.push_back(value);
}

}  // namespace

void DraftTrials::take_cap(int cap) {
  if (cap == cap_) return;
  cap_ = cap;
  num_steps_ = 0;
  steps_left_ = 0;
  steps_to_trial_ = std::min(steps_to_trial_, kShortestPeriod);
  steps_to_highest_ = std::max(steps_to_highest_, kShortestPeriod);
  usual_s_.clear();
  trial_s_.clear();
}

void DraftTrials::begin_trial(const Trial& trial, int64_t& steps_to_next) {
  trial_ = trial;
  const double draws = trial_.cap > 0 ? kFewestDraws : 0;
  const auto steps = static_cast<int64_t>(std::ceil(draws / std::max(1.0, requests_)));
  steps_left_ = std::max(kFewestSteps, steps);
  steps_to_next = period_after(steps_left_);
}

// In the time of the trial the usual steps would have brought more. So many may be lost that way.
int64_t DraftTrials::period_after(int64_t num_steps) const {
  const bool is_compared =
      (cap_ == 0 || is_known(cap_)) && (trial_.cap == 0 || is_known(trial_.cap));
  if (!is_compared) return num_steps_ < kPatience ? kFirstPeriod : kUnknownPeriod;
  const double usual_steps = static_cast<double>(num_steps) * ratio(trial_.cap) / ratio(cap_);
  const double lost = usual_steps * (1 - gain(trial_.cap).value_or(1) / gain(cap_).value_or(1));
  return std::clamp(static_cast<int64_t>(lost / kMostCost), kShortestPeriod, kLongestPeriod);
}

void DraftTrials::begin_other_step(int cap) {
  take_cap(cap);
  ++num_steps_;
  for (Arm& arm : arms_) ++arm.age;
}

// Trials of the most drafts wait until it is known what steps at the cap take.
std::optional<DraftTrials::Trial> DraftTrials::begin_step(int cap, int promising) {
  begin_other_step(cap);
  if (steps_left_ == 0) {
    const auto highest = static_cast<int>(std::ssize(arms_)) - 1;
    --steps_to_trial_;
    --steps_to_highest_;
    if (steps_to_trial_ <= 0) {
      begin_trial({.cap = cap_ > 0 ? 0 : promising}, steps_to_trial_);
    } else if (steps_to_highest_ <= 0 && cap_ < highest && (cap_ == 0 || is_known(cap_))) {
      begin_trial({.cap = highest, .verifies_all = true}, steps_to_highest_);
    }
  }
  if (steps_left_ == 0) return std::nullopt;
  --steps_left_;
  return trial_;
}

void DraftTrials::forget(double requests) {
  std::fill(arms_.begin(), arms_.end(), Arm{});
  requests_ = requests;
  num_steps_ = 0;
  usual_s_.clear();
  trial_s_.clear();
  steps_to_trial_ = std::min(steps_to_trial_, kFirstPeriod);
  steps_to_highest_ = std::min(steps_to_highest_, 2 * kFirstPeriod);
}

void DraftTrials::count_draws(const Step& step) {
  const double memory = step.cap == cap_ ? kDrawMemory : kTrialDrawMemory;
  const double kept = std::pow(memory, step.requests);
  Arm& arm = arms_[step.cap];
  arm.tokens = kept * arm.tokens + step.tokens;
  arm.draws = kept * arm.draws + step.requests;
}

void DraftTrials::observe(const Step& step) {
  if (std::abs(step.requests - requests_) > kOtherLoad * requests_) forget(step.requests);
  requests_ += kLoadNewest * (step.requests - requests_);
  count_draws(step);
  if (step.cap == cap_) {
    if (!trial_s_.empty()) end_trial();
    append_newest(step.seconds, kUsualSteps, usual_s_);
  } else if (step.cap == trial_.cap) {
    trial_s_.push_back(step.seconds);
  }
}

void DraftTrials::end_trial() {
  const double other = mean_without_outliers(trial_s_);
  trial_s_.clear();
  if (usual_s_.empty()) return;
  const double usual = mean_without_outliers(usual_s_);
  if (trial_.cap == 0) {
    add_ratio(cap_, usual / other);
  } else if (cap_ == 0 || is_known(cap_)) {
    add_ratio(trial_.cap, ratio(cap_) * other / usual);
  }
}

void DraftTrials::add_ratio(int cap, double ratio) {
  append_newest(ratio, kRatios, arms_[cap].ratios);
  arms_[cap].age = 0;
}

bool DraftTrials::is_known(int cap) const {
  const Arm& arm = arms_[cap];
  return std::ssize(arm.ratios) >= kFewestTrials && arm.age < kLongAgo && arm.draws > 0;
}

double DraftTrials::ratio(int cap) const { return cap == 0 ? 1 : median(arms_[cap].ratios); }

std::optional<double> DraftTrials::gain(int cap) const {
  if (!is_known(cap)) return std::nullopt;
  return arms_[cap].tokens / arms_[cap].draws / ratio(cap);
}

bool DraftTrials::is_to_come() const {
  if (num_steps_ >= kPatience) return false;
  if (cap_ > 0) return !is_known(cap_);
  for (int cap = 1; cap < std::ssize(arms_); ++cap) {
    if (is_known(cap)) return false;
  }
  return true;
}

}  // namespace dhs
