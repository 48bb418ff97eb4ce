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
  double seconds = 0;  // of the rows
};

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

}  // namespace

double output_under(const DraftLoad& load, int64_t cap) {
  const double running = load.running[cap];
  const double miss_factor = std::pow(running, kMissPower);
  const double base_s = load.base_s + (cap > 0 ? load.proposing_s : 0);
  double rate = 0;
  for (int i = 0; i < kIterations; ++i) {
    Yield sum;
    for (const DraftLoad::Request& request : load.requests) {
      const Yield one = yield_of(request, rate, miss_factor, cap);
      sum.tokens += running * one.tokens;
      sum.seconds += running * one.seconds;
    }
    const double seconds = base_s + sum.seconds;
    if (seconds <= 0) return 0;
    rate = sum.tokens / seconds;
  }
  return rate;
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
