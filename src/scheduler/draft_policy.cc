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

}  // namespace

DraftPolicy::DraftPolicy(int num_draft_tokens, bool is_adaptive, double record_fetch_s)
    : highest_(num_draft_tokens),
      is_adaptive_(is_adaptive && num_draft_tokens > 0),
      record_fetch_s_(record_fetch_s),
      length_(num_draft_tokens),
      all_requests_(kPooledMemory),
      trials_(num_draft_tokens),
      promising_(num_draft_tokens) {}

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

void DraftPolicy::begin_step(bool has_prompts) {
  is_probe_ = false;
  num_to_ask_ = is_adaptive_ ? num_adaptive(has_prompts) : highest_;
  planned_.push_back({num_to_ask_, std::exchange(num_before_, num_to_ask_)});
}

int DraftPolicy::num_adaptive(bool has_prompts) {
  std::optional<DraftTrials::Trial> trial;
  if (has_prompts) {
    trials_.begin_other_step(cap());
  } else {
    trial = trials_.begin_step(cap(), promising_);
  }
  if (trial.has_value()) {
    is_probe_ = trial->verifies_all;
    return trial->cap;
  }
  if (cap() == 0 || --steps_to_probe_ > 0) return cap();
  steps_to_probe_ = kProbePeriod;
  is_probe_ = true;
  return std::min(cap() + 1, highest_);
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
                          const std::vector<double>& running) {
  since_evaluation_ = 0;
  if (!cost_.is_known() || requests.empty() || trials_.is_to_come()) return cap();
  DraftLoad load{.requests = {},
                 .base_s = cost_.step_s() - cost_.proposing_share() * cost_.proposing_s(),
                 .proposing_s = cost_.proposing_s(),
                 .running = running};
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
  std::vector<double> outputs;
  for (int candidate = 0; candidate <= highest_; ++candidate) {
    outputs.push_back(output_under(load, candidate));
  }
  correct(load, outputs);
  const auto best_above_0 = std::max_element(outputs.begin() + 1, outputs.end());
  promising_ = static_cast<int>(best_above_0 - outputs.begin());
  return length_.evaluate(outputs);
}

std::optional<double> DraftPolicy::gain(const DraftLoad& load, int other) const {
  const std::optional<double> measured = trials_.gain(other);
  const std::optional<double> here = cap() > 0 ? trials_.gain(cap()) : std::nullopt;
  if (!measured.has_value() || !here.has_value() || other == cap()) return measured;
  const double more_tokens = tokens_under(load, other) / tokens_under(load, cap());
  const double more_seconds = *trials_.slowdown(other) / *trials_.slowdown(cap());
  return *here * more_tokens / more_seconds;
}

// A cap that was not tried is as far off as the nearest one that was.
void DraftPolicy::correct(const DraftLoad& load, std::vector<double>& outputs) const {
  std::vector<std::pair<int, double>> factors;  // of the caps that were tried
  for (int cap = 1; cap <= highest_; ++cap) {
    const std::optional<double> gained = gain(load, cap);
    if (!gained.has_value() || outputs[cap] <= 0) continue;
    const double measured = outputs[0] / load.running[0] * load.running[cap] * *gained;
    factors.emplace_back(cap, measured / outputs[cap]);
  }
  if (factors.empty()) return;
  for (int cap = 1; cap <= highest_; ++cap) {
    const auto distance = [cap](const auto& factor) { return std::abs(factor.first - cap); };
    outputs[cap] *= std::ranges::min_element(factors, {}, distance)->second;
  }
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
  const Planned planned = planned_.front();
  planned_.pop_front();
  RowCost::Step step = std::exchange(step_, {});
  const auto tokens = static_cast<double>(std::exchange(step_tokens_, 0));
  const auto requests = static_cast<double>(std::exchange(step_requests_, 0));
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (!is_adaptive_ || step.num_rows == 0 || seconds <= 0) return;
  step.prompt_tokens = prompt_tokens;
  step.is_proposing = is_proposing;
  cost_.observe(step, elapsed);
  if (prompt_tokens == 0 && planned.num_asked == planned.num_before) {
    trials_.observe(
        {.cap = planned.num_asked, .requests = requests, .tokens = tokens, .seconds = seconds});
  }
  tokens_ = kRateMemory * tokens_ + tokens;
  seconds_ = kRateMemory * seconds_ + seconds;
  ++since_evaluation_;
}

}  // namespace dhs
