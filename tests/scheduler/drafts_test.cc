// Requests whose steps verify drafts.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler_driver.h"

namespace dhs {
namespace {

constexpr SchedulerConfig kConfig = {
    .max_running = 4, .max_batched_tokens = 16, .draft = {.num_tokens = 3}};

using Tokens = std::vector<TokenId>;

auto drawing(Tokens tokens) {
  return [tokens](uint64_t) { return tokens; };
}

TEST(Drafts, are_verified_in_the_step_after_the_one_that_proposes_them) {
  SchedulerDriver driver(kConfig, 8);
  driver.set_proposals({60, 61, 62, 63});
  driver.enqueue(1, {.prompt_tokens = 5, .max_tokens = 20});
  EXPECT_EQ(describe(driver.step(drawing({50})).work), "1: 0+5!");
  const StepRecord step = driver.step(drawing({60, 51}));
  EXPECT_EQ(describe(step.work), "1: 5+4!");
  EXPECT_EQ(step.work[0].tokens, (Tokens{50, 60, 61, 62}));
  EXPECT_EQ(step.work[0].num_draft_tokens, 3);
}

TEST(Drafts, rejected_ones_are_computed_again) {
  SchedulerDriver driver(kConfig, 8);
  driver.set_proposals({60, 61, 62});
  driver.enqueue(1, {.prompt_tokens = 5, .max_tokens = 20});
  driver.step(drawing({50}));
  driver.step(drawing({60, 51}));  // one of three
  EXPECT_EQ(describe(driver.step(drawing({52})).work), "1: 7+4!");
  EXPECT_EQ(describe(driver.step(drawing({60, 61, 62, 53})).work), "1: 8+4!");
  EXPECT_EQ(describe(driver.step().work), "1: 12+4!");
}

TEST(Drafts, never_reach_beyond_the_last_token) {
  SchedulerDriver driver(kConfig, 8);
  driver.set_proposals({60, 61, 62});
  driver.enqueue(1, {.prompt_tokens = 5, .max_tokens = 4});
  driver.step(drawing({50}));
  const StepRecord step = driver.step(drawing({60, 61, 51}));
  EXPECT_EQ(describe(step.work), "1: 5+3!");
  ASSERT_TRUE(step.update_of(1)->finished.has_value());
  EXPECT_EQ(step.update_of(1)->finished->reason, FinishReason::kLength);
  EXPECT_EQ(step.update_of(1)->finished->usage.completion_tokens, 4);
}

TEST(Drafts, a_stop_token_among_the_accepted_ends_the_request_there) {
  SchedulerDriver driver(kConfig, 8);
  driver.set_proposals({60, kEndToken, 62});
  driver.enqueue(1, {.prompt_tokens = 5, .max_tokens = 20});
  driver.step(drawing({50}));
  const StepRecord step = driver.step(drawing({60, kEndToken, 62, 51}));
  ASSERT_EQ(step.update_of(1)->tokens.size(), 2u);
  EXPECT_EQ(step.update_of(1)->finished->stop_token, kEndToken);
  EXPECT_TRUE(driver.scheduler().idle());
}

TEST(Drafts, take_only_the_rows_that_decoding_requests_leave) {
  SchedulerConfig config = kConfig;
  config.max_batched_tokens = 7;
  SchedulerDriver driver(config, 8);
  driver.set_proposals({60, 61, 62});
  for (uint64_t request : {1, 2, 3}) driver.enqueue(request, {.prompt_tokens = 1, .max_tokens = 9});
  driver.step(drawing({50}));
  EXPECT_EQ(describe(driver.step(drawing({51})).work), "1: 1+4!, 2: 1+2!, 3: 1+1!");
}

TEST(Drafts, a_request_that_verifies_is_not_planned_ahead) {
  SchedulerDriver driver(kConfig, 8);
  driver.set_proposals({60, 61, 62});
  driver.enqueue(1, {.prompt_tokens = 5, .max_tokens = 20});
  driver.step(drawing({50}));
  std::vector<RequestUpdate> updates;
  const StepPlan verify = driver.scheduler().plan(absl::UnixEpoch(), updates);
  ASSERT_EQ(verify.ranks[0].work.size(), 1u);
  const StepPlan ahead = driver.scheduler().plan(absl::UnixEpoch(), updates);
  EXPECT_FALSE(ahead.has_work());
  StepResult result;
  result.sequences.resize(1);
  for (TokenId token : {60, 61, 62, 51}) result.sequences[0].tokens.push_back({token, 0.0f, {}});
  driver.scheduler().commit(verify, result, updates);
  driver.scheduler().commit(ahead, {}, updates);
  EXPECT_EQ(driver.scheduler().check_invariants(), "");
  EXPECT_EQ(describe(driver.step().work), "1: 9+1!");
}

TEST(Drafts, accepted_ones_reach_the_prefix_cache) {
  SchedulerConfig config = kConfig;
  config.max_batched_tokens = 64;
  SchedulerDriver driver(config, 8);
  driver.set_proposals({60, 61, 62});
  driver.enqueue(1, {.prompt_tokens = 62, .max_tokens = 20});
  driver.step(drawing({50}));
  driver.step(drawing({60, 61, 62, 51}));  // position 63 is 60: the block is full
  driver.step(drawing({52}));
  Tokens tokens(62);
  for (int32_t i = 0; i < 62; ++i) tokens[i] = 1000 + i;
  tokens.insert(tokens.end(), {50, 60, 61});
  EXPECT_EQ(driver.kv().cached_tokens({.max_tokens = 70, .tokens = tokens}), 64);
}

// ---- Adaptive lengths ---------------------------------------------------------------------------

// 5 ms a step, 1 ms a row, 2 ms to propose.
absl::Duration taken(const RankPlan& plan) {
  const bool is_proposing =
      std::any_of(plan.work.begin(), plan.work.end(),
                  [](const SequenceWork& work) { return work.num_tokens_to_draft > 0; });
  return absl::Milliseconds(5 + plan.num_rows() + (is_proposing ? 2 : 0));
}

TEST(Drafts, are_given_up_where_none_is_accepted_and_nothing_is_asked_for_any_more) {
  SchedulerConfig config = kConfig;
  config.draft.is_adaptive = true;
  SchedulerDriver driver(config, 64);
  driver.set_proposals({60, 61, 62});
  driver.set_elapsed(taken);
  for (uint64_t request : {1, 2}) {
    driver.enqueue(request, {.prompt_tokens = 5, .max_tokens = 1950});
  }
  EXPECT_EQ(driver.scheduler().draft_cap(), 3);
  for (int i = 0; i < 600; ++i) driver.step();
  EXPECT_EQ(driver.scheduler().draft_cap(), 0);
  int num_asked = 0;
  int num_verified = 0;
  int num_asking = 0;
  for (int i = 0; i < 1300; ++i) {
    const StepRecord step = driver.step();
    num_asking += step.work.at(0).num_tokens_to_draft > 0 ? 1 : 0;
    num_asked += step.work.at(0).num_tokens_to_draft;
    num_verified += step.work.at(0).num_draft_tokens;
  }
  EXPECT_GE(num_asking, 6) << "one trial or more, of a dozen draws";
  EXPECT_LE(num_asking, 36);
  EXPECT_GE(num_verified, 6) << "or nothing is learned";
  EXPECT_LE(num_verified, num_asked);
}

TEST(Drafts, are_all_verified_where_all_are_accepted) {
  SchedulerConfig config = kConfig;
  config.draft.is_adaptive = true;
  SchedulerDriver driver(config, 64);
  driver.set_proposals({60, 61, 62});
  driver.set_elapsed(taken);
  driver.enqueue(1, {.prompt_tokens = 5, .max_tokens = 900});
  int64_t num_drafts = 0;
  int num_steps = 0;
  driver.step(drawing({50}));
  for (int64_t drafts = 3; num_steps < 200; ++num_steps) {
    Tokens tokens = {60, 61, 62};
    const auto draw = [&](uint64_t) {
      tokens.resize(drafts);
      tokens.push_back(50);
      return tokens;
    };
    const StepRecord step = driver.step(draw);
    num_drafts += step.work.at(0).num_draft_tokens;
    // What is proposed now is verified in full, as far as it was asked for.
    drafts = step.work.at(0).num_tokens_to_draft;
  }
  EXPECT_GT(num_drafts, 3 * 175) << "trials go without";
  EXPECT_EQ(driver.scheduler().draft_cap(), 3);
}

}  // namespace
}  // namespace dhs
