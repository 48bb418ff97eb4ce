// How many prompt tokens a step may take beside decodes, learned from what steps took.
#include "dhisparse/step_cost.h"

#include <gtest/gtest.h>

#include "scheduler/shares.h"

namespace dhs {
namespace {

constexpr absl::Duration kTarget = absl::Milliseconds(20);

// A machine on which a decode takes 10 ms and a prompt token 0.1 ms.
absl::Duration taken(int64_t prompt_tokens) {
  return absl::Milliseconds(10) + prompt_tokens * absl::Microseconds(100);
}

TEST(StepCost, begins_carefully_and_learns_what_fits_into_the_target) {
  StepCost cost;
  EXPECT_EQ(cost.max_prompt_tokens(kTarget, 512), StepCost::kFewest);
  cost.observe(8, 0, taken(0));
  cost.observe(8, 16, taken(16));
  EXPECT_NEAR(static_cast<double>(cost.max_prompt_tokens(kTarget, 512)), 100, 1);
  EXPECT_EQ(cost.max_prompt_tokens(kTarget, 40), 40) << "the limit holds";
}

TEST(StepCost, follows_a_machine_that_becomes_slower) {
  StepCost cost;
  for (int i = 0; i < 20; ++i) {
    cost.observe(8, 0, 2 * taken(0));
    cost.observe(8, 50, 2 * taken(50));
  }
  EXPECT_EQ(cost.max_prompt_tokens(kTarget, 512), StepCost::kFewest) << "decodes alone take it all";
  EXPECT_NEAR(static_cast<double>(cost.max_prompt_tokens(3 * kTarget, 512)), 200, 4);
}

TEST(StepCost, takes_the_limit_without_a_target_and_the_fewest_below_it) {
  StepCost cost;
  cost.observe(8, 0, taken(0));
  cost.observe(8, 100, taken(100));
  EXPECT_EQ(cost.max_prompt_tokens(absl::InfiniteDuration(), 512), 512);
  EXPECT_EQ(cost.max_prompt_tokens(absl::Milliseconds(1), 512), StepCost::kFewest);
  EXPECT_EQ(cost.max_prompt_tokens(absl::Milliseconds(1), 3), 3);
}

TEST(StepCost, one_step_that_was_fast_by_chance_does_not_make_tokens_free) {
  StepCost cost;
  cost.observe(8, 0, taken(0));
  for (int i = 0; i < 10; ++i) cost.observe(8, 100, taken(100));
  cost.observe(8, 100, absl::Milliseconds(1));
  EXPECT_LE(cost.max_prompt_tokens(kTarget, 512), 125);
}

TEST(Shares, are_equal_and_what_one_does_not_want_goes_to_the_others) {
  auto share = [](int64_t budget, std::vector<int64_t> wanted) {
    return share_out(budget, wanted);
  };
  EXPECT_EQ(share(12, {100, 100, 100}), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(share(12, {100, 2, 100}), (std::vector<int64_t>{5, 2, 5}));
  EXPECT_EQ(share(12, {1, 2, 3}), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(share(2, {9, 9, 1}), (std::vector<int64_t>{1, 0, 1})) << "the smallest first";
  EXPECT_EQ(share(0, {5}), (std::vector<int64_t>{0}));
  EXPECT_EQ(share(7, {}), (std::vector<int64_t>{}));
}

}  // namespace
}  // namespace dhs
