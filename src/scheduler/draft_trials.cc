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
constexpr int64_t kLongAgo = 4096;  // steps: more than the next trials of each kind take

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
  usual_s_.clear();
  trial_s_.clear();
}

void DraftTrials::begin_trial(int promising) {
  const auto highest = static_cast<int>(std::ssize(arms_)) - 1;
  const bool verifies_all = cap_ == 0 && ++num_trials_at_0_ % 2 == 0;
  trial_ = {.cap = cap_ > 0 ? 0 : verifies_all ? highest : promising, .verifies_all = verifies_all};
  const double draws = trial_.cap > 0 ? kFewestDraws : 0;
  const auto steps = static_cast<int64_t>(std::ceil(draws / std::max(1.0, requests_)));
  steps_left_ = std::max(kFewestSteps, steps);
  steps_to_trial_ = period_after(steps_left_);
}

// The trial takes the time of num_steps * slower of the other steps, and brings of their output in
// that time `share`.
int64_t DraftTrials::period_after(int64_t num_steps) const {
  const Arm& arm = arms_[std::max(cap_, trial_.cap)];
  if (!is_known(arm)) return kFirstPeriod;
  const double gain = *this->gain(std::max(cap_, trial_.cap));
  const double ratio = median(arm.ratios);
  const double slower = cap_ > 0 ? 1 / ratio : ratio;
  const double share = cap_ > 0 ? 1 / gain : gain;
  const double lost_steps = static_cast<double>(num_steps) * slower * (1 - share);
  const auto period = static_cast<int64_t>(lost_steps / kMostCost);
  return std::clamp(period, kShortestPeriod, kLongestPeriod);
}

std::optional<DraftTrials::Trial> DraftTrials::begin_step(int cap, int promising) {
  take_cap(cap);
  ++num_steps_;
  for (Arm& arm : arms_) ++arm.age;
  if (steps_left_ == 0 && --steps_to_trial_ <= 0) begin_trial(promising);
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
  if (!usual_s_.empty()) {
    const double other = mean_without_outliers(trial_s_) / mean_without_outliers(usual_s_);
    Arm& arm = arms_[std::max(cap_, trial_.cap)];
    append_newest(cap_ > 0 ? 1 / other : other, kRatios, arm.ratios);
    arm.age = 0;
  }
  trial_s_.clear();
}

bool DraftTrials::is_known(const Arm& arm) const {
  return std::ssize(arm.ratios) >= kFewestTrials && arm.age < kLongAgo && arm.draws > 0;
}

std::optional<double> DraftTrials::gain(int cap) const {
  const Arm& arm = arms_[cap];
  if (!is_known(arm)) return std::nullopt;
  return arm.tokens / arm.draws / median(arm.ratios);
}

bool DraftTrials::is_to_come() const {
  if (num_steps_ >= kPatience) return false;
  if (cap_ > 0) return !is_known(arms_[cap_]);
  return std::none_of(arms_.begin(), arms_.end(), [this](const Arm& arm) { return is_known(arm); });
}

}  // namespace dhs
