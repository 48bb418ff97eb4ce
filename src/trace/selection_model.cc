// Solves a profile: the groups' multipliers, and the curve whose mean over saturated groups and
// shifted steps is the profile's locality.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "dhisparse/counter_random.h"
#include "dhisparse/trace.h"

namespace dhs {
namespace {

constexpr int kPointsPerDoubling = 16;
constexpr int kNumDoublings = 24;
// Beyond 4k rows M falls like rows^-1.05: the power that fits published miss ratios and goes
// through the measured ones at 2k and far beyond it.
constexpr double kTailRatio = 0.48296816446242274;  // 2^-1.05

// Own code, because the library's exp and log differ in the last bit from machine to machine.
double exact_exp(double x) {
  const double halved = x / 1024;
  double sum = 1;
  double term = 1;
  for (int i = 1; i <= 12; ++i) {
    term *= halved / i;
    sum += term;
  }
  for (int i = 0; i < 10; ++i) sum *= sum;
  return sum;
}

double exact_log(double x) {
  double low = -50;
  double high = 50;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (exact_exp(middle) < x ? low : high) = middle;
  }
  return high;
}

// sqrt is correctly rounded everywhere. root = 1 / kPointsPerDoubling.
double per_point(double ratio_per_doubling) {
  double root = ratio_per_doubling;
  for (int points = 1; points < kPointsPerDoubling; points *= 2) root = std::sqrt(root);
  return root;
}

// Quantiles (i + 1/2) / count of the standard normal distribution, by summing its density.
std::vector<double> normal_quantiles(int count) {
  constexpr int kStepsPerUnit = 2048;
  constexpr int kLimit = 8 * kStepsPerUnit;
  std::vector<double> density(2 * kLimit);
  for (int i = -kLimit; i < kLimit; ++i) {
    const double z = (i + 0.5) / kStepsPerUnit;
    density[i + kLimit] = exact_exp(-z * z / 2);
  }
  const double total = std::accumulate(density.begin(), density.end(), 0.0);
  std::vector<double> quantiles;
  double below = 0;
  int next = 0;
  for (int i = 0; i < count; ++i) {
    const double wanted = total * (i + 0.5) / count;
    while (below + density[next] < wanted) below += density[next++];
    const double part = (wanted - below) / density[next];
    quantiles.push_back((next - kLimit + part) / kStepsPerUnit);
  }
  return quantiles;
}

std::vector<double> make_multipliers(const SelectionProfile& profile) {
  constexpr double kQuantileRange = 2 * 1.6448536269514722;  // 5th to 95th percentile, in sigmas
  const double sigma = exact_log(profile.group_spread) / kQuantileRange;
  std::vector<double> multipliers = normal_quantiles(profile.num_groups);
  for (double& multiplier : multipliers) multiplier = exact_exp(sigma * multiplier);
  const double sum = std::accumulate(multipliers.begin(), multipliers.end(), 0.0);
  for (double& multiplier : multipliers) multiplier *= profile.num_groups / sum;
  for (int i = profile.num_groups - 1; i > 0; --i) {
    const auto other = trace::random_below(profile.model_seed, static_cast<uint64_t>(i), i + 1);
    std::swap(multipliers[i], multipliers[other]);
  }
  return multipliers;
}

double factor_at_age(const SelectionProfile& profile, int64_t age) {
  const double left = 1.0 - static_cast<double>(age) / profile.shift_steps;
  return left <= 0 ? 1.0 : 1 + (profile.shift_factor - 1) * left;
}

// The mean over groups and steps of min(1, m * factor * share).
double mean_share(const SelectionProfile& profile, std::span<const double> multipliers,
                  double share) {
  double sum = 0;
  for (double multiplier : multipliers) {
    const double level = multiplier * share;
    sum += (profile.shift_period - profile.shift_steps) * std::min(1.0, level);
    for (int age = 0; age < profile.shift_steps; ++age) {
      sum += std::min(1.0, level * factor_at_age(profile, age));
    }
  }
  return sum / profile.shift_period / static_cast<double>(multipliers.size());
}

// The share at which that mean is `wanted`, which is less than 1.
double solve_share(const SelectionProfile& profile, std::span<const double> multipliers,
                   double wanted) {
  double low = 0;
  double high = 1;
  while (mean_share(profile, multipliers, high) < wanted && high < 1e6) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (mean_share(profile, multipliers, middle) < wanted ? low : high) = middle;
  }
  return high;
}

std::vector<SelectionModel::CurvePoint> make_curve(const SelectionProfile& profile,
                                                   std::span<const double> multipliers) {
  const double num_drawn = profile.top_k - profile.num_recent - profile.num_sinks;
  const Locality& locality = profile.locality;
  std::vector<double> shares;
  for (double missed : {locality.at_k, locality.at_2k, locality.at_4k}) {
    shares.push_back(solve_share(profile, multipliers, missed * profile.top_k / num_drawn));
  }
  const double rows_ratio = per_point(2);
  std::vector<SelectionModel::CurvePoint> curve = {{double(profile.top_k), shares[0]}};
  for (int doubling = 0; doubling < kNumDoublings; ++doubling) {
    const double ratio =
        per_point(doubling < 2 ? shares[doubling + 1] / shares[doubling] : kTailRatio);
    for (int i = 0; i < kPointsPerDoubling; ++i) {
      curve.push_back({curve.back().rows * rows_ratio, curve.back().share * ratio});
    }
  }
  return curve;
}

absl::Status out_of_range(const char* field, double value, const std::string& limit) {
  return absl::InvalidArgumentError(
      absl::StrCat("selection profile: ", field, " is ", value, ", it must be ", limit));
}

absl::Status check_share(const char* field, double value) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return out_of_range(field, value, "in [0, 1]");
}

absl::Status validate_locality(const SelectionProfile& profile) {
  const Locality& locality = profile.locality;
  const double num_drawn = profile.top_k - profile.num_recent - profile.num_sinks;
  const double limit = num_drawn / profile.top_k;
  if (!(locality.at_k > 0 && locality.at_k < limit)) {
    return out_of_range("locality.at_k", locality.at_k,
                        absl::StrCat("above 0 and below the drawn share, ", limit));
  }
  if (!(locality.at_2k > 0 && locality.at_2k < locality.at_k)) {
    return out_of_range("locality.at_2k", locality.at_2k, "above 0 and below locality.at_k");
  }
  if (!(locality.at_4k > 0 && locality.at_4k < locality.at_2k)) {
    return out_of_range("locality.at_4k", locality.at_4k, "above 0 and below locality.at_2k");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const SelectionProfile& profile) {
  if (profile.num_groups < 1) return out_of_range("num_groups", profile.num_groups, "at least 1");
  if (profile.num_recent < 1) return out_of_range("num_recent", profile.num_recent, "at least 1");
  if (profile.num_sinks < 0) return out_of_range("num_sinks", profile.num_sinks, "at least 0");
  const int64_t num_fixed = int64_t{profile.num_recent} + profile.num_sinks;
  if (profile.top_k <= num_fixed) {
    return out_of_range("top_k", profile.top_k,
                        absl::StrCat("above num_recent + num_sinks, ", num_fixed));
  }
  if (!(profile.group_spread >= 1 && profile.group_spread <= 1e6)) {
    return out_of_range("group_spread", profile.group_spread, "in [1, 1e6]");
  }
  if (profile.shift_steps < 1)
    return out_of_range("shift_steps", profile.shift_steps, "at least 1");
  if (profile.shift_period < profile.shift_steps) {
    return out_of_range("shift_period", profile.shift_period,
                        absl::StrCat("at least shift_steps, ", profile.shift_steps));
  }
  if (!(profile.shift_factor >= 1 && profile.shift_factor <= 1e3)) {
    return out_of_range("shift_factor", profile.shift_factor, "in [1, 1000]");
  }
  DHS_RETURN_IF_ERROR(check_share("shared_share", profile.shared_share));
  if (profile.num_candidates < 1 || profile.num_candidates > 16) {
    return out_of_range("num_candidates", profile.num_candidates, "in [1, 16]");
  }
  return validate_locality(profile);
}

SelectionModel::SelectionModel(const SelectionProfile& profile) : profile_(profile) {
  const absl::Status status = validate(profile);
  DHS_CHECK(status.ok(), status.message());
  multipliers_ = make_multipliers(profile);
  curve_ = make_curve(profile, multipliers_);
}

int32_t SelectionModel::num_drawn() const {
  return profile_.top_k - profile_.num_recent - profile_.num_sinks;
}

double SelectionModel::shift_at(uint64_t seed, int64_t step) const {
  const int64_t period = step / profile_.shift_period;
  int64_t last_shift = -profile_.shift_steps;
  for (int64_t p = std::max<int64_t>(0, period - 1); p <= period; ++p) {
    const int64_t shift =
        p * profile_.shift_period +
        trace::random_below(seed, static_cast<uint64_t>(p), profile_.shift_period);
    if (shift <= step) last_shift = shift;
  }
  return factor_at_age(profile_, step - last_shift);
}

}  // namespace dhs
