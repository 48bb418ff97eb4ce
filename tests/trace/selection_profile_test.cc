#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "dhisparse/trace.h"
#include "trace/selections.h"

namespace dhs {
namespace {

using testing::HasSubstr;

TEST(SelectionProfile, a_value_out_of_range_is_named_with_its_limit) {
  struct Case {
    const char* message;
    std::function<void(SelectionProfile&)> break_it;
  };
  const Case cases[] = {
      {"num_groups is 0", [](auto& p) { p.num_groups = 0; }},
      {"num_recent is 0", [](auto& p) { p.num_recent = 0; }},
      {"num_sinks is -1", [](auto& p) { p.num_sinks = -1; }},
      {"top_k is 144, it must be above num_recent + num_sinks, 144",
       [](auto& p) { p.top_k = 144; }},
      {"group_spread is 0.5", [](auto& p) { p.group_spread = 0.5; }},
      {"shift_steps is 0", [](auto& p) { p.shift_steps = 0; }},
      {"shift_period is 49, it must be at least shift_steps, 50",
       [](auto& p) { p.shift_period = 49; }},
      {"shift_factor is 0.9", [](auto& p) { p.shift_factor = 0.9; }},
      {"shared_share is 1.1", [](auto& p) { p.shared_share = 1.1; }},
      {"num_candidates is 17", [](auto& p) { p.num_candidates = 17; }},
      {"locality.at_k is 0.95", [](auto& p) { p.locality.at_k = 0.95; }},
      {"locality.at_2k is 0.4", [](auto& p) { p.locality.at_2k = 0.4; }},
      {"locality.at_4k is nan", [](auto& p) { p.locality.at_4k = std::nan(""); }},
  };
  EXPECT_TRUE(validate(SelectionProfile()).ok());
  for (const Case& wrong : cases) {
    SelectionProfile profile;
    wrong.break_it(profile);
    EXPECT_THAT(std::string(validate(profile).message()), HasSubstr(wrong.message));
  }
}

TEST(SelectionModel, multipliers_are_log_normal_with_the_profiles_spread_and_mean_one) {
  SelectionProfile profile;
  profile.num_groups = 2001;
  std::vector<double> multipliers;
  const SelectionModel model(profile);
  for (int group = 0; group < profile.num_groups; ++group) {
    multipliers.push_back(model.multiplier(group));
  }
  EXPECT_FALSE(std::is_sorted(multipliers.begin(), multipliers.end()));
  const double sum = std::accumulate(multipliers.begin(), multipliers.end(), 0.0);
  EXPECT_NEAR(sum / profile.num_groups, 1, 1e-9);
  std::sort(multipliers.begin(), multipliers.end());
  EXPECT_NEAR(multipliers[1900] / multipliers[100], 36, 0.5);
  // The median of a log-normal distribution lies at exp(-sigma^2 / 2) of its mean.
  const double sigma = std::log(36) / (2 * 1.6448536);
  EXPECT_NEAR(multipliers[1000], std::exp(-sigma * sigma / 2), 0.01);
}

TEST(SelectionModel, one_shift_in_every_period_falls_back_linearly) {
  const SelectionProfile profile;
  const SelectionModel model(profile);
  int num_shifts = 0;
  for (int64_t step = 1; step < 100 * profile.shift_period; ++step) {
    const double factor = model.shift_at(11, step);
    const double before = model.shift_at(11, step - 1);
    ASSERT_GE(factor, 1);
    if (factor > before) {
      ++num_shifts;
      ASSERT_EQ(factor, profile.shift_factor);
    } else if (before > 1) {
      ASSERT_NEAR(before - factor, 2.0 / profile.shift_steps, 1e-12);
    }
  }
  EXPECT_NEAR(num_shifts, 100, 1);
}

}  // namespace
}  // namespace dhs
