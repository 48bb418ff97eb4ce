#include "scheduler/draft_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dhs {
namespace {

// Of the history of all requests: what an observation leaves of those before it.
constexpr double kPooledMemory = 0.999;
// How many observations of its own a request's history needs to outweigh that of all.
constexpr double kPooledWeight = 4;
constexpr double kUnknownWeight = 1;
constexpr double kNewest = 0.2;      // weight of a request's newest misses
constexpr double kRateMemory = 0.9;  // what a step leaves of those before it
// Of a meter: what a step leaves, from how many on it counts, and how far off the number of
// requests may be.
constexpr double kMeterMemory = 0.95;
constexpr int kFewestMetered = 3;
constexpr double kOtherLoad = 0.25;
constexpr double kOutlier = 3;  // times the average; longer steps are cut to that

}  // namespace

DraftPolicy::DraftPolicy(int num_draft_tokens, bool is_adaptive, double record_fetch_s)
    : highest_(num_draft_tokens),
      is_adaptive_(is_adaptive),
      record_fetch_s_(record_fetch_s),
      length_(num_draft_tokens),
      all_requests_(kPooledMemory) {}

// ---- Acceptance ---------------------------------------------------------------------------------

double DraftPolicy::expected_acceptance(const RequestDrafts& drafts, int64_t position) const {
  const double pooled = all_requests_.acceptance(position, 1, kUnknownWeight);
  return drafts.history.acceptance(position, pooled, kPooledWeight);
}

std::vector<double> DraftPolicy::acceptance_of(const RequestDrafts& drafts, int64_t count) const {
  std::vector<double> acceptance;
  for (int64_t j = 0; j < count; ++j) {
    acceptance.push_back(j < std::ssize(drafts.confidence)
                             ? calibration_.calibrated(drafts.confidence[j])
                             : expected_acceptance(drafts, j));
  }
  return acceptance;
}

// ---- Planning -----------------------------------------------------------------------------------

void DraftPolicy::begin_step() {
  num_to_ask_ = is_adaptive_ ? cap() : highest_;
  is_probe_ = false;
  if (!is_adaptive_ || highest_ == 0) return;
  if (burst_left_ > 0) {
    --burst_left_;
    num_to_ask_ = burst_ask_;
    return;
  }
  if (--steps_to_probe_ > 0) return;
  steps_to_probe_ = cost_.is_known() ? kProbePeriod : kFirstPeriod;
  ++num_probes_;
  const bool begins_burst = cost_.is_known() && num_probes_ % (cap() == 0 ? 4 : 2) == 1;
  if (begins_burst) {
    burst_left_ = kBurst - 1;
    burst_ask_ = num_to_ask_ = cap() == 0 ? highest_ : 0;
    return;
  }
  is_probe_ = cap() == 0 || num_probes_ % 2 == 0;
  num_to_ask_ = is_probe_ ? std::min(cap() + 1, highest_) : 0;
}

int64_t DraftPolicy::num_to_verify(RequestDrafts& drafts, int64_t num_drafts) {
  if (!is_adaptive_ || drafts.is_probe || !cost_.is_known() || num_drafts == 0) return num_drafts;
  const double rate = seconds_ > 0 ? tokens_ / seconds_ : 0;
  const double row_s = cost_.row_s() + fetch_s(drafts);
  int64_t length = verify_length(acceptance_of(drafts, num_drafts), rate, row_s);
  if (length == 0 && ++drafts.num_skips >= kMostSkips) length = 1;
  if (length > 0) drafts.num_skips = 0;
  return length;
}

int DraftPolicy::best_cap(std::span<const RequestDrafts* const> requests,
                          std::vector<double> running, std::vector<double> cached) {
  since_evaluation_ = absl::ZeroDuration();
  if (!cost_.is_known() || requests.empty()) return cap();
  DraftLoad load{.requests = {},
                 .base_s = cost_.step_s() - cost_.proposing_share() * cost_.proposing_s(),
                 .proposing_s = cost_.proposing_s(),
                 .running = std::move(running),
                 .cached = std::move(cached)};
  double fetches = 0;
  for (const RequestDrafts* drafts : requests) {
    DraftLoad::Request& request = load.requests.emplace_back();
    for (int64_t j = 0; j < highest_; ++j) {
      request.acceptance.push_back(expected_acceptance(*drafts, j));
    }
    request.row_s = cost_.row_s();
    request.fetch_s = fetch_s(*drafts);
    fetches += request.fetch_s / static_cast<double>(requests.size());
  }
  load.base_s = std::max(0.0, load.base_s - cost_.num_rows() * (cost_.row_s() + fetches));
  const std::vector<double> requests_running = load.running;
  std::vector<double> outputs;
  for (int candidate = 0; candidate <= highest_; ++candidate) {
    outputs.push_back(output_under(load, candidate));
  }
  correct(outputs, requests_running);
  return length_.evaluate(outputs);
}

// ---- What was measured --------------------------------------------------------------------------

void DraftPolicy::Meter::add(double tokens, double seconds, double requests) {
  if (std::abs(requests - requests_) > kOtherLoad * requests_) *this = {};
  if (num_steps_ >= kFewestMetered) seconds = std::min(seconds, kOutlier * tokens / rate());
  tokens_ = kMeterMemory * tokens_ + tokens;
  seconds_ = kMeterMemory * seconds_ + seconds;
  requests_ = num_steps_ == 0 ? requests : requests_ + (1 - kMeterMemory) * (requests - requests_);
  ++num_steps_;
}

bool DraftPolicy::Meter::is_known(double requests) const {
  return num_steps_ >= kFewestMetered && seconds_ > 0 &&
         std::abs(requests - requests_) <= kOtherLoad * requests_;
}

void DraftPolicy::measure(double tokens, double seconds, bool is_proposing,
                          const RowCost::Step& step) {
  num_requests_ = std::exchange(step_requests_, 0);
  if (step.prompt_tokens > 0) return;
  const bool verifies = static_cast<double>(step.num_rows) > num_requests_;
  if (!is_proposing && !verifies) plain_.add(tokens, seconds, num_requests_);
  if (is_proposing && (verifies || cap() > 0)) drafting_.add(tokens, seconds, num_requests_);
}

void DraftPolicy::correct(std::vector<double>& outputs, const std::vector<double>& running) const {
  const int drafting = cap() > 0 ? cap() : highest_;
  if (!plain_.is_known(num_requests_) || !drafting_.is_known(num_requests_)) return;
  if (outputs[drafting] <= 0) return;
  const double factor = drafting_.rate() * running[drafting] / outputs[drafting];
  for (size_t i = 1; i < outputs.size(); ++i) outputs[i] *= factor;
  outputs[0] = plain_.rate() * running[0];
}

// ---- Results ------------------------------------------------------------------------------------

void DraftPolicy::observe(RequestDrafts& drafts, const Decoded& decoded) {
  const int64_t num_rows = 1 + decoded.num_verified;
  step_.num_rows += num_rows;
  ++step_requests_;
  step_.fetch_s += static_cast<double>(num_rows) * fetch_s(drafts);
  step_tokens_ += 1 + decoded.num_accepted;
  const double missed = static_cast<double>(decoded.rows_fetched) / static_cast<double>(num_rows);
  drafts.missed_per_row += kNewest * (missed - drafts.missed_per_row);
  drafts.history.observe(decoded.num_verified, decoded.num_accepted);
  all_requests_.observe(decoded.num_verified, decoded.num_accepted);
  const int64_t num_tried =
      std::min({decoded.num_verified, decoded.num_accepted + 1, std::ssize(drafts.confidence)});
  for (int64_t j = 0; j < num_tried; ++j) {
    calibration_.observe(drafts.confidence[j], j < decoded.num_accepted);
  }
}

void DraftPolicy::end_step(int64_t prompt_tokens, bool is_proposing, absl::Duration elapsed) {
  RowCost::Step step = std::exchange(step_, {});
  const auto tokens = static_cast<double>(std::exchange(step_tokens_, 0));
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (!is_adaptive_ || step.num_rows == 0 || seconds <= 0) {
    step_requests_ = 0;
    return;
  }
  step.prompt_tokens = prompt_tokens;
  step.is_proposing = is_proposing;
  measure(tokens, seconds, is_proposing, step);
  cost_.observe(step, elapsed);
  tokens_ = kRateMemory * tokens_ + tokens;
  seconds_ = kRateMemory * seconds_ + seconds;
  since_evaluation_ += elapsed;
}

}  // namespace dhs
