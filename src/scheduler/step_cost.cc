#include "dhisparse/step_cost.h"

#include <algorithm>

namespace dhs {
namespace {

constexpr double kNewest = 0.25;  // weight of the newest step

double averaged(double average, double value) {
  return average == 0 ? value : average + kNewest * (value - average);
}

}  // namespace

void StepCost::observe(int64_t num_decodes, int64_t prompt_tokens, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds <= 0) return;
  if (prompt_tokens == 0) {
    decode_s_ = averaged(decode_s_, seconds);
    return;
  }
  const double decode_s = num_decodes > 0 ? decode_s_ : 0;
  // A step that seems to cost nothing per token is noise: half of what a token was thought to cost.
  const double per_token_s =
      std::max((seconds - decode_s) / static_cast<double>(prompt_tokens), per_token_s_ / 2);
  per_token_s_ = averaged(per_token_s_, per_token_s);
}

int64_t StepCost::max_prompt_tokens(absl::Duration target, int64_t limit) const {
  const double spare_s = absl::ToDoubleSeconds(target) - decode_s_;
  if (target == absl::InfiniteDuration()) return limit;
  if (per_token_s_ == 0) return std::min(limit, kFewest);  // nothing is known yet: carefully
  const double tokens = std::clamp(spare_s / per_token_s_, 0.0, static_cast<double>(limit));
  return std::min(limit, std::max(kFewest, static_cast<int64_t>(tokens)));
}

}  // namespace dhs
