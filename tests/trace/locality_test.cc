// The generator against measurements of real selections: exact LRU at three sizes, other policies
// at 2k rows, the spread of index groups. Everything is a mean over groups and steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "dhisparse/trace.h"
#include "trace/cache_policies.h"
#include "trace/selections.h"

namespace dhs {
namespace {

constexpr double kTolerance = 1;  // percentage points
// The multipliers have the published spread exactly. What is missed spreads by 32.9 in both
// regimes: with one candidate a stratum it would be 35.9 and 35.0, but rows long in use, which
// strata prefer, lie deeper, and in a group that misses little a stratum reaches far to both sides
// of 4k rows. Nominees, shifts and the end of the context move it by 1.4 at most.
constexpr double kSpread = 36, kSpreadTolerance = 0.1 * kSpread;

struct Measured {  // of selected rows, in percent
  double lru_k = 0, lru_2k = 0, lru_4k = 0;
  double fifo_2k = 0, random_2k = 0, belady_2k = 0;
};

// The steps that count: caches are warm by the first, and Belady still sees far behind the last.
struct Window {
  int64_t first;
  int64_t last;
};

Measured measure_group(const std::vector<trace::Pass>& passes, int64_t top_k, Window window,
                       bool with_policies) {
  const double selected = static_cast<double>(top_k * (window.last - window.first));
  const auto percent = [&](const std::vector<int64_t>& missed) {
    return 100 * test::total(missed, window.first, window.last) / selected;
  };
  const std::vector<int64_t> capacities = {top_k, 2 * top_k, 4 * top_k};
  const auto lru = trace::lru_misses(passes, capacities);
  Measured measured = {percent(lru[0]), percent(lru[1]), percent(lru[2])};
  if (!with_policies) return measured;
  measured.fifo_2k = percent(trace::fifo_misses(passes, 2 * top_k));
  measured.random_2k = percent(trace::random_misses(passes, 2 * top_k, 1));
  measured.belady_2k = percent(trace::belady_misses(passes, 2 * top_k));
  return measured;
}

Measured mean(const std::vector<Measured>& groups) {
  Measured mean;
  const auto count = static_cast<double>(groups.size());
  for (const Measured& group : groups) {
    mean.lru_k += group.lru_k / count;
    mean.lru_2k += group.lru_2k / count;
    mean.lru_4k += group.lru_4k / count;
    mean.fifo_2k += group.fifo_2k / count;
    mean.random_2k += group.random_2k / count;
    mean.belady_2k += group.belady_2k / count;
  }
  return mean;
}

std::vector<Measured> measure(const SelectionProfile& profile, int num_steps, Window window,
                              bool with_policies) {
  const SelectionModel model(profile);
  std::vector<Measured> groups;
  for (const auto& passes : test::make_passes(model, 1, num_steps)) {
    groups.push_back(measure_group(passes, profile.top_k, window, with_policies));
  }
  return groups;
}

// By bisection: the standard normal distribution holds `share` below it.
double normal_quantile(double share) {
  double low = -10;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2)) / 2 < share ? low : high) = middle;
  }
  return high;
}

// Of values that are the quantiles (i + 1/2) / n of a log-normal distribution, as a model's
// multipliers are: their logarithms are linear in the normal quantile. With 21 groups the 5th
// percentile lies between the lowest two, which are almost a factor of two apart: interpolation in
// the values, or between ranks i / (n - 1), is off by 12 % and more.
double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto below = static_cast<size_t>(share * count - 0.5);
  const auto quantile = [&](size_t i) {
    return normal_quantile((static_cast<double>(i) + 0.5) / count);
  };
  const double part =
      (normal_quantile(share) - quantile(below)) / (quantile(below + 1) - quantile(below));
  return std::exp(std::lerp(std::log(values[below]), std::log(values[below + 1]), part));
}

double spread(const std::vector<double>& values) {
  return percentile(values, 0.95) / percentile(values, 0.05);
}

// What is missed at 4k rows: the published spread was measured with about 3k. The step's own row
// is not among it: caches are given it.
double group_spread(const std::vector<Measured>& groups) {
  std::vector<double> missed;
  for (const Measured& group : groups) missed.push_back(group.lru_4k);
  return spread(missed);
}

TEST(Locality, the_spread_of_a_models_multipliers_is_measured_exactly) {
  const SelectionProfile profile = test::scaled_profile(256, 21);
  const SelectionModel model(profile);
  std::vector<double> multipliers;
  for (int group = 0; group < profile.num_groups; ++group) {
    multipliers.push_back(model.multiplier(group));
  }
  EXPECT_NEAR(spread(multipliers), profile.group_spread, 0.01);
}

TEST(Locality, close_selections_miss_what_was_measured_under_every_policy) {
  const auto groups = measure(test::scaled_profile(256, 21), 2400, {800, 2000}, true);
  const Measured all = mean(groups);
  EXPECT_NEAR(all.lru_k, 30, kTolerance);
  EXPECT_NEAR(all.lru_2k, 13.4, kTolerance);
  EXPECT_NEAR(all.lru_4k, 6.7, kTolerance);
  EXPECT_NEAR(all.fifo_2k, 17.2, kTolerance);
  EXPECT_NEAR(all.random_2k, 16.1, kTolerance);
  EXPECT_NEAR(all.belady_2k, 8.2, kTolerance);
  EXPECT_NEAR(group_spread(groups), kSpread, kSpreadTolerance);
}

TEST(Locality, wide_selections_miss_what_was_measured) {
  SelectionProfile profile = test::scaled_profile(256, 21);
  profile.locality = kWideLocality;
  const auto groups = measure(profile, 1600, {400, 1600}, false);
  const Measured all = mean(groups);
  EXPECT_NEAR(all.lru_k, 55, kTolerance);
  EXPECT_NEAR(all.lru_2k, 24.6, kTolerance);
  EXPECT_NEAR(all.lru_4k, 12.3, kTolerance);
  EXPECT_NEAR(group_spread(groups), kSpread, kSpreadTolerance);
}

TEST(Locality, holds_at_the_published_top_k) {
  const auto groups = measure(test::scaled_profile(2048, 5), 1200, {400, 1200}, false);
  const Measured all = mean(groups);
  EXPECT_NEAR(all.lru_k, 30, kTolerance);
  EXPECT_NEAR(all.lru_2k, 13.4, kTolerance);
  EXPECT_NEAR(all.lru_4k, 6.7, kTolerance);
}

}  // namespace
}  // namespace dhs
