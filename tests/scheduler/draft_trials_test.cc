// Trials: when they are made, and what follows from them.
#include "scheduler/draft_trials.h"

#include <gtest/gtest.h>

#include <functional>

namespace dhs {
namespace {

constexpr int kHighest = 4;

// Steps of 10 ms without drafts; with them slower, for more tokens.
struct Machine {
  double requests = 8;
  double slower = 2;
  double tokens_per_draw = 3;
  std::function<double(int64_t)> speed = [](int64_t) { return 1.0; };  // by step

  // Makes the steps; the numbers of those that were of a trial.
  std::vector<int64_t> run(DraftTrials& trials, int cap, int num_steps, int promising = kHighest) {
    std::vector<int64_t> in_trial;
    for (int i = 0; i < num_steps; ++i, ++step) {
      const std::optional<DraftTrials::Trial> trial = trials.begin_step(cap, promising);
      if (trial.has_value()) in_trial.push_back(step);
      const int asked = trial.has_value() ? trial->cap : cap;
      caps.push_back(asked);
      if (asked == std::exchange(before, asked)) trials.observe(taken(asked));
    }
    return in_trial;
  }

  DraftTrials::Step taken(int asked) const {
    const bool drafts = asked > 0;
    return {.cap = asked,
            .requests = requests,
            .tokens = requests * (drafts ? tokens_per_draw : 1),
            .seconds = 0.010 * (drafts ? slower : 1) * speed(step)};
  }

  int64_t step = 0;
  int before = kHighest;
  std::vector<int> caps;
};

TEST(DraftTrials, gain_is_tokens_by_time) {
  DraftTrials trials(kHighest);
  Machine machine;
  EXPECT_FALSE(trials.gain(kHighest).has_value());
  EXPECT_TRUE(trials.is_to_come());
  machine.run(trials, kHighest, 40);
  ASSERT_TRUE(trials.gain(kHighest).has_value());
  EXPECT_DOUBLE_EQ(*trials.gain(kHighest), 1.5);
  EXPECT_FALSE(trials.is_to_come());
  EXPECT_FALSE(trials.gain(2).has_value()) << "that cap was not tried";
}

TEST(DraftTrials, compare_steps_beside_each_other) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.speed = [](int64_t step) { return step < 200 ? 1.0 : 5.0; };  // another load beside it
  machine.run(trials, kHighest, 1000);
  EXPECT_NEAR(*trials.gain(kHighest), 1.5, 1e-9);
}

TEST(DraftTrials, one_that_was_disturbed_changes_nothing) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.run(trials, kHighest, 200);
  machine.speed = [](int64_t step) { return step % 2 == 0 ? 10.0 : 1.0; };
  while (machine.run(trials, kHighest, 1).empty()) continue;
  machine.run(trials, kHighest, DraftTrials::kFewestSteps);
  EXPECT_DOUBLE_EQ(*trials.gain(kHighest), 1.5);
}

TEST(DraftTrials, of_the_most_drafts_are_compared_with_none_by_way_of_the_cap_between) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.run(trials, 2, 1000);  // all caps above 0 cost and bring the same
  EXPECT_DOUBLE_EQ(*trials.gain(2), 1.5);
  ASSERT_TRUE(trials.gain(kHighest).has_value());
  EXPECT_DOUBLE_EQ(*trials.gain(kHighest), 1.5);
}

TEST(DraftTrials, do_without_drafts_where_there_are_some) {
  DraftTrials trials(kHighest);
  Machine machine;
  const std::vector<int64_t> steps = machine.run(trials, 3, 16);
  ASSERT_EQ(std::ssize(steps), DraftTrials::kFewestSteps);
  for (int64_t step : steps) EXPECT_EQ(machine.caps[step], 0);
  EXPECT_EQ(steps.front(), DraftTrials::kFirstPeriod - 1);
}

TEST(DraftTrials, try_what_promises_most_and_also_the_most_where_there_are_none) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.requests = 2;
  const std::vector<int64_t> steps = machine.run(trials, 0, 80, 1);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(machine.caps[steps.front()], 1);
  int num_full = 0;
  for (const int64_t step : steps) num_full += machine.caps[step] == kHighest ? 1 : 0;
  EXPECT_GE(num_full, DraftTrials::kFewestDraws / 2) << "a trial of a dozen draws";
  EXPECT_LT(num_full, std::ssize(steps) / 2 + 1);
}

TEST(DraftTrials, of_a_kind_that_costs_much_do_not_keep_the_other_kind_from_being_made) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.slower = 4;  // drafts lose, none does not
  machine.run(trials, 2, 400);
  const std::vector<int64_t> steps = machine.run(trials, 2, 1000);
  int num_plain = 0;
  for (const int64_t step : steps) num_plain += machine.caps[step] == 0 ? 1 : 0;
  EXPECT_GE(num_plain, 4 * 20) << "every 32 steps or so";
}

TEST(DraftTrials, cost_little_of_the_output) {
  for (const int cap : {0, kHighest}) {
    DraftTrials trials(kHighest);
    Machine machine;
    machine.slower = cap == 0 ? 4 : 1.5;  // so the cap is right: gains of 0.75 and 2
    machine.run(trials, cap, 400);
    const int64_t num_steps = 50000;
    const auto num_in_trial = static_cast<double>(machine.run(trials, cap, num_steps).size());
    const double lost = cap == 0 ? 4 * (1 - 0.75) : 1 / 1.5 * (1 - 1 / 2.0);
    EXPECT_GT(num_in_trial, 0);
    EXPECT_LE(num_in_trial * lost, 2.2 * DraftTrials::kMostCost * num_steps);
  }
}

TEST(DraftTrials, hold_for_a_load_only) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.run(trials, kHighest, 400);
  machine.requests = 9;
  machine.run(trials, kHighest, 1);
  EXPECT_TRUE(trials.gain(kHighest).has_value());
  machine.requests = 16;
  machine.slower = 4;
  machine.run(trials, kHighest, 1);
  EXPECT_FALSE(trials.gain(kHighest).has_value());
  EXPECT_TRUE(trials.is_to_come());
  machine.run(trials, kHighest, 48);
  EXPECT_DOUBLE_EQ(trials.gain(kHighest).value_or(0), 0.75) << "and the first come soon";
}

TEST(DraftTrials, of_a_load_are_remembered_while_there_is_another) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.slower = 4;
  machine.run(trials, 0, 100);
  machine.requests = 2;
  machine.slower = 2;
  machine.run(trials, 0, 100);
  EXPECT_DOUBLE_EQ(*trials.gain(kHighest), 1.5);
  machine.requests = 8;
  machine.slower = 4;
  machine.run(trials, 0, 1);
  EXPECT_DOUBLE_EQ(trials.gain(kHighest).value_or(0), 0.75);
  EXPECT_FALSE(trials.is_to_come());
}

TEST(DraftTrials, cost_little_where_loads_come_and_go) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.slower = 4;
  const auto run = [&](int num_changes) {
    size_t num_in_trial = 0;
    for (int i = 0; i < num_changes; ++i) {
      machine.requests = i % 2 == 0 ? 8 : 4;
      num_in_trial += machine.run(trials, 0, 50).size();
    }
    return static_cast<double>(num_in_trial);
  };
  run(4);
  const int num_steps = 50 * 50;
  const double lost = 4 * (1 - 0.75);
  EXPECT_LE(run(50) * lost, 2.2 * DraftTrials::kMostCost * num_steps);
}

TEST(DraftTrials, of_the_load_that_is_longest_gone_are_forgotten) {
  DraftTrials trials(kHighest);
  Machine machine;
  double requests = 1;
  for (size_t i = 0; i <= DraftTrials::kMostLoads; ++i, requests *= 2) {
    machine.requests = requests;
    machine.run(trials, kHighest, 100);
  }
  machine.requests = 2;
  machine.run(trials, kHighest, 1);
  EXPECT_TRUE(trials.gain(kHighest).has_value());
  machine.requests = 1;
  machine.run(trials, kHighest, 1);
  EXPECT_FALSE(trials.gain(kHighest).has_value());
}

TEST(DraftTrials, are_waited_for_in_vain_where_prompts_are_in_every_step) {
  DraftTrials trials(kHighest);
  for (int i = 0; i < 200; ++i) trials.begin_other_step(kHighest);
  EXPECT_FALSE(trials.is_to_come());
  Machine machine;
  EXPECT_EQ(machine.run(trials, kHighest, 20).front(), DraftTrials::kFirstPeriod - 1)
      << "and begin behind them as they would have";
}

TEST(DraftTrials, of_a_cap_are_remembered_while_another_holds) {
  DraftTrials trials(kHighest);
  Machine machine;
  machine.run(trials, 2, 100);
  machine.run(trials, kHighest, 100);
  EXPECT_TRUE(trials.gain(2).has_value());
  EXPECT_TRUE(trials.gain(kHighest).has_value());
  machine.run(trials, kHighest, 10000);
  EXPECT_FALSE(trials.gain(2).has_value()) << "that was long ago";
  EXPECT_TRUE(trials.gain(kHighest).has_value());
}

}  // namespace
}  // namespace dhs
