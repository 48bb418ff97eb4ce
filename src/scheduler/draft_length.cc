#include "scheduler/draft_length.h"

#include <algorithm>
#include <cmath>

#include "dhisparse/kv_geometry.h"
#include "scheduler/verify_length.h"

namespace dhs {
namespace {

// Dinkelbach's method converges faster than linearly.
constexpr int kIterations = 8;

struct Yield {
  double tokens = 0;
  double seconds = 0;
};

// Of its rows.
Yield yield_of(const DraftLoad::Request& request, double rate, double miss_factor, int64_t cap) {
  const double row_s = request.row_s + request.fetch_s * miss_factor;
  const int64_t most = std::min(cap, std::ssize(request.acceptance));
  const std::span<const double> acceptance(request.acceptance);
  const int64_t length = verify_length(acceptance.first(most), rate, row_s);
  Yield yield{.tokens = 1, .seconds = static_cast<double>(1 + length) * row_s};
  double survival = 1;
  for (int64_t j = 0; j < length; ++j) {
    survival *= acceptance[j];
    yield.tokens += survival;
  }
  return yield;
}

// Of a step: all of it.
Yield step_under(const DraftLoad& load, int64_t cap) {
  const double running = load.running[cap];
  const double miss_factor = std::pow(running, kMissPower);
  const double base_s = load.base_s + (cap > 0 ? load.proposing_s : 0);
  Yield step;
  for (int i = 0; i < kIterations; ++i) {
    const double rate = step.seconds > 0 ? step.tokens / step.seconds : 0;
    step = {.seconds = base_s};
    for (const DraftLoad::Request& request : load.requests) {
      const Yield one = yield_of(request, rate, miss_factor, cap);
      step.tokens += running * one.tokens;
      step.seconds += running * one.seconds;
    }
  }
  return step;
}

}  // namespace

double output_under(const DraftLoad& load, int64_t cap) {
  const Yield step = step_under(load, cap);
  return step.seconds > 0 ? step.tokens / step.seconds : 0;
}

double tokens_under(const DraftLoad& load, int64_t cap) {
  const double draws = load.running[cap] * static_cast<double>(load.requests.size());
  return step_under(load, cap).tokens / draws;
}

int DraftLength::evaluate(std::span<const double> outputs) {
  const auto best = std::max_element(outputs.begin(), outputs.end());
  if (*best <= kWorth * outputs[cap_]) {
    num_better_ = 0;
    return cap_;
  }
  const bool is_clear = *best > kClear * outputs[cap_];
  if (++num_better_ < kEvaluations && !is_clear) return cap_;
  return static_cast<int>(best - outputs.begin());
}

void DraftLength::set_cap(int cap) {
  if (cap == cap_) return;
  cap_ = cap;
  num_better_ = 0;
}

}  // namespace dhs
