// What a step is told of the tokens that penalties apply to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler_driver.h"

namespace dhs {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SchedulerConfig kPlain = {.max_running = 4, .max_batched_tokens = 16};
constexpr SchedulerConfig kDrafting = {
    .max_running = 4, .max_batched_tokens = 16, .draft = {.num_tokens = 3}};

auto drawing(std::vector<TokenId> tokens) {
  return [tokens](uint64_t) { return tokens; };
}

TEST(Penalties, see_every_token_up_to_the_newest) {
  SchedulerDriver driver(kPlain, 8);
  driver.enqueue(1, {.prompt_tokens = 2, .max_tokens = 9, .repetition_penalty = 2});
  driver.enqueue(2, {.prompt_tokens = 2, .max_tokens = 9, .presence_penalty = 1});
  driver.enqueue(3, {.prompt_tokens = 2, .max_tokens = 9});
  StepRecord step = driver.step(drawing({1001}));
  EXPECT_THAT(step.work[0].seen, ElementsAre(SeenToken{1000, true, 0}, SeenToken{1001, true, 0}));
  EXPECT_THAT(step.work[1].seen, IsEmpty());
  driver.step(drawing({50}));
  step = driver.step(drawing({50}));
  EXPECT_THAT(step.work[0].seen, ElementsAre(SeenToken{50, false, 1}, SeenToken{1000, true, 0},
                                             SeenToken{1001, true, 1}));
  EXPECT_THAT(step.work[1].seen, ElementsAre(SeenToken{50, false, 1}, SeenToken{1001, false, 1}));
  EXPECT_THAT(step.work[2].seen, IsEmpty());
}

TEST(Penalties, see_accepted_drafts_and_no_others) {
  SchedulerDriver driver(kDrafting, 8);
  driver.set_proposals({60, 61, 62});
  driver.enqueue(1, {.prompt_tokens = 5, .max_tokens = 20, .presence_penalty = 1});
  driver.step(drawing({50}));
  StepRecord step = driver.step(drawing({60, 51}));  // one of three
  EXPECT_EQ(step.work[0].num_draft_tokens, 3);
  EXPECT_THAT(step.work[0].seen, ElementsAre(SeenToken{50, false, 1}));
  step = driver.step(drawing({60, 61, 62, 53}));
  EXPECT_THAT(step.work[0].seen, ElementsAre(SeenToken{50, false, 1}, SeenToken{51, false, 1},
                                             SeenToken{60, false, 1}));
  step = driver.step();
  EXPECT_THAT(step.work[0].seen, ElementsAre(SeenToken{50, false, 1}, SeenToken{51, false, 1},
                                             SeenToken{53, false, 1}, SeenToken{60, false, 2},
                                             SeenToken{61, false, 1}, SeenToken{62, false, 1}));
}

TEST(Penalties, see_the_whole_prompt_where_its_beginning_is_cached) {
  SchedulerConfig config = kPlain;
  config.max_batched_tokens = 128;
  SchedulerDriver driver(config, 8);
  driver.enqueue(1, {.prompt_tokens = 70, .max_tokens = 1});
  driver.finish_all();
  driver.enqueue(2, {.prompt_tokens = 70, .max_tokens = 3, .repetition_penalty = 2, .text = 1});
  const StepRecord step = driver.step();
  ASSERT_EQ(describe(step.work), "2: 64+6!");
  ASSERT_EQ(step.work[0].seen.size(), 70u);
  EXPECT_EQ(step.work[0].seen.front(), (SeenToken{1000, true, 0}));
}

TEST(Penalties, see_the_same_after_a_pause) {
  SchedulerDriver driver(kDrafting, 8);
  driver.set_proposals({60, 61, 62});
  driver.enqueue(1, {.prompt_tokens = 2, .max_tokens = 20, .presence_penalty = 1});
  driver.step(drawing({50}));
  driver.step(drawing({60, 51}));
  driver.scheduler().set_paused(RequestId(1), true);
  driver.step();
  ASSERT_EQ(driver.scheduler().num_parked(), 1);
  driver.scheduler().set_paused(RequestId(1), false);
  const StepRecord step = driver.step();
  ASSERT_EQ(describe(step.work), "1: 4+1!");
  EXPECT_THAT(step.work[0].seen, ElementsAre(SeenToken{50, false, 1}, SeenToken{51, false, 1},
                                             SeenToken{60, false, 1}));
}

TEST(Penalties, keep_a_request_from_being_planned_ahead_and_biases_alone_do_not) {
  SchedulerDriver driver(kPlain, 8);
  driver.enqueue(1, {.prompt_tokens = 2, .max_tokens = 20, .presence_penalty = 1});
  driver.enqueue(2, {.prompt_tokens = 2, .max_tokens = 20, .logit_bias = {{9, 1}, {4, -1}}});
  driver.step();
  std::vector<RequestUpdate> updates;
  const StepPlan first = driver.scheduler().plan(absl::UnixEpoch(), updates);
  ASSERT_EQ(first.ranks[0].work.size(), 2u);
  const StepPlan ahead = driver.scheduler().plan(absl::UnixEpoch(), updates);
  ASSERT_EQ(ahead.ranks[0].work.size(), 1u);
  const SequenceWork& work = ahead.ranks[0].work[0];
  EXPECT_EQ(work.request, RequestId(2));
  EXPECT_TRUE(work.previous_draw.has_value());
  ASSERT_EQ(work.sampling->logit_bias.size(), 2u);
  EXPECT_EQ(work.sampling->logit_bias[0].token, 4);  // in rising order
  StepResult result;
  result.sequences.resize(2);
  for (SequenceResult& sequence : result.sequences) sequence.tokens.push_back({50, 0.0f, {}});
  driver.scheduler().commit(first, result, updates);
  result.sequences.resize(1);
  driver.scheduler().commit(ahead, result, updates);
  EXPECT_EQ(driver.scheduler().check_invariants(), "");
  EXPECT_EQ(describe(driver.step().work), "1: 3+1!, 2: 4+1!");
}

}  // namespace
}  // namespace dhs
