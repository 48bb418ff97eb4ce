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
  load().steps_to_trial = std::min(load().steps_to_trial, kShortestPeriod);
  load().steps_to_highest = std::max(load().steps_to_highest, kShortestPeriod);
  usual_s_.clear();
  trial_s_.clear();
}

bool DraftTrials::Load::is_of(double number) const {
  return std::abs(number - requests) <= kOtherLoad * requests;
}

// One that is not remembered begins with trials soon.
void DraftTrials::take_load(double requests) {
  const auto is_known = [requests](const Load& known) { return known.is_of(requests); };
  const auto newest = std::find_if(loads_.rbegin(), loads_.rend(), is_known);
  if (newest != loads_.rend()) {
    std::rotate(newest.base() - 1, newest.base(), loads_.end());
  } else {
    Load fresh(highest_);
    fresh.requests = requests;
    fresh.steps_to_trial = std::min(load().steps_to_trial, fresh.steps_to_trial);
    fresh.steps_to_highest = std::min(load().steps_to_highest, fresh.steps_to_highest);
    if (loads_.size() == kMostLoads) loads_.erase(loads_.begin());
    loads_.push_back(std::move(fresh));
  }
  num_steps_ = 0;
  usual_s_.clear();
  trial_s_.clear();
}

void DraftTrials::begin_trial(const Trial& trial, int64_t& steps_to_next) {
  trial_ = trial;
  const double draws = trial_.cap > 0 ? kFewestDraws : 0;
  const auto steps = static_cast<int64_t>(std::ceil(draws / std::max(1.0, load().requests)));
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
  for (Load& load : loads_) {
    for (Arm& arm : load.arms) ++arm.age;
  }
}

// Trials of the most drafts wait until it is known what steps at the cap take.
std::optional<DraftTrials::Trial> DraftTrials::begin_step(int cap, int promising) {
  begin_other_step(cap);
  if (steps_left_ == 0) {
    --load().steps_to_trial;
    --load().steps_to_highest;
    if (load().steps_to_trial <= 0) {
      begin_trial({.cap = cap_ > 0 ? 0 : promising}, load().steps_to_trial);
    } else if (load().steps_to_highest <= 0 && cap_ < highest_ && (cap_ == 0 || is_known(cap_))) {
      begin_trial({.cap = highest_, .verifies_all = true}, load().steps_to_highest);
    }
  }
  if (steps_left_ == 0) return std::nullopt;
  --steps_left_;
  return trial_;
}

void DraftTrials::count_draws(const Step& step) {
  const double memory = step.cap == cap_ ? kDrawMemory : kTrialDrawMemory;
  const double kept = std::pow(memory, step.requests);
  Arm& arm = load().arms[step.cap];
  arm.tokens = kept * arm.tokens + step.tokens;
  arm.draws = kept * arm.draws + step.requests;
}

void DraftTrials::observe(const Step& step) {
  if (!load().is_of(step.requests)) take_load(step.requests);
  load().requests += kLoadNewest * (step.requests - load().requests);
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
  Arm& arm = load().arms[cap];
  append_newest(ratio, kRatios, arm.ratios);
  arm.age = 0;
}

bool DraftTrials::is_known(int cap) const {
  return std::ssize(arm(cap).ratios) >= kFewestTrials && arm(cap).age < kLongAgo &&
         arm(cap).draws > 0;
}

double DraftTrials::ratio(int cap) const { return cap == 0 ? 1 : median(arm(cap).ratios); }

std::optional<double> DraftTrials::gain(int cap) const {
  if (!is_known(cap)) return std::nullopt;
  return arm(cap).tokens / arm(cap).draws / ratio(cap);
}

std::optional<double> DraftTrials::slowdown(int cap) const {
  if (!is_known(cap)) return std::nullopt;
  return ratio(cap);
}

bool DraftTrials::is_to_come() const {
  if (num_steps_ >= kPatience) return false;
  if (cap_ > 0) return !is_known(cap_);
  for (int cap = 1; cap <= highest_; ++cap) {
    if (is_known(cap)) return false;
  }
  return true;
}

}  // namespace dhs
