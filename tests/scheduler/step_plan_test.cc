// What a step computes: decodes first, then prompt chunks within the budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler_driver.h"

namespace dhs {
namespace {

using testing::ElementsAre;

constexpr SchedulerConfig kSixteen = {.max_running = 4, .max_batched_tokens = 16};

TEST(StepPlan, a_long_prompt_is_cut_into_chunks_and_only_the_last_draws) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, {.prompt_tokens = 40});
  std::vector<TokenId> computed;
  for (const char* expected : {"1: 0+16", "1: 16+16", "1: 32+8!"}) {
    const StepRecord record = driver.step();
    ASSERT_EQ(describe(record.work), expected);
    EXPECT_EQ(record.updates.empty(), !record.work.front().wants_token);
    const std::vector<TokenId>& tokens = record.work.front().tokens;
    computed.insert(computed.end(), tokens.begin(), tokens.end());
  }
  ASSERT_EQ(computed.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(computed[i], 1000 + i);
}

TEST(StepPlan, a_decode_computes_the_token_drawn_last_at_the_next_position) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, {.prompt_tokens = 5});
  TokenId next = 60;
  const auto draw = [&](uint64_t) { return std::vector<TokenId>{next++}; };
  driver.step(draw);
  for (int i = 0; i < 3; ++i) {
    const StepRecord record = driver.step(draw);
    ASSERT_EQ(record.work.size(), 1u);
    EXPECT_EQ(record.work.front().first_position, 5 + i);
    EXPECT_THAT(record.work.front().tokens, ElementsAre(60 + i));
    EXPECT_EQ(record.work.front().seed, 101u);
  }
}

TEST(StepPlan, decodes_come_before_prompt_chunks_and_leave_them_the_rest_of_the_budget) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, {.prompt_tokens = 16});
  EXPECT_EQ(describe(driver.step().work), "1: 0+16!");
  driver.enqueue(2, {.prompt_tokens = 40});
  EXPECT_EQ(describe(driver.step().work), "1: 16+1!, 2: 0+15");
  driver.enqueue(3, {.prompt_tokens = 3});
  EXPECT_EQ(describe(driver.step().work), "1: 17+1!, 2: 15+12, 3: 0+3!");
  EXPECT_EQ(describe(driver.step().work), "1: 18+1!, 3: 3+1!, 2: 27+13!");
}

TEST(StepPlan, a_decode_admitted_later_still_precedes_an_older_prompt) {
  SchedulerDriver driver({.max_running = 4, .max_batched_tokens = 8}, 64);
  driver.enqueue(1, {.prompt_tokens = 4, .max_tokens = 8});
  driver.enqueue(2, {.prompt_tokens = 30, .max_tokens = 8});
  EXPECT_EQ(describe(driver.step().work), "1: 0+4!, 2: 0+4");
  EXPECT_EQ(describe(driver.step().work), "1: 4+1!, 2: 4+7");
}

TEST(StepPlan, prompts_share_the_step_and_a_short_one_does_not_wait_for_a_long_one) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(8, {.prompt_tokens = 10});
  driver.enqueue(1, {.prompt_tokens = 200});
  driver.enqueue(2, {.prompt_tokens = 5});
  EXPECT_EQ(describe(driver.step().work), "8: 0+6, 1: 0+5, 2: 0+5!");
  EXPECT_EQ(describe(driver.step().work), "2: 5+1!, 8: 6+4!, 1: 5+11");
  EXPECT_EQ(describe(driver.step().work), "8: 10+1!, 2: 6+1!, 1: 16+14");
}

TEST(StepPlan, beside_decodes_prompts_take_no_more_than_prefill_chunk) {
  SchedulerDriver driver({.max_running = 4, .max_batched_tokens = 16, .prefill_chunk = 6}, 64);
  driver.enqueue(1, {.prompt_tokens = 16, .max_tokens = 3});
  EXPECT_EQ(describe(driver.step().work), "1: 0+16!") << "nobody decodes";
  driver.enqueue(2, {.prompt_tokens = 40});
  EXPECT_EQ(describe(driver.step().work), "1: 16+1!, 2: 0+6");
  EXPECT_EQ(describe(driver.step().work), "1: 17+1!, 2: 6+6");
  EXPECT_EQ(describe(driver.step().work), "2: 12+16");
}

TEST(StepPlan, never_exceeds_the_budget_and_computes_every_position_once_in_order) {
  SchedulerDriver driver({.max_running = 5, .max_batched_tokens = 7}, 64);
  std::vector<int64_t> computed(9);
  for (uint64_t request = 1; request <= 8; ++request) {
    driver.enqueue(request, {.prompt_tokens = static_cast<int32_t>(request * 5), .max_tokens = 6});
  }
  while (!driver.scheduler().idle()) {
    int64_t num_tokens = 0;
    for (const PlannedWork& work : driver.step().work) {
      num_tokens += std::ssize(work.tokens);
      EXPECT_GT(work.tokens.size(), 0u);
      EXPECT_EQ(work.first_position, computed[work.request]);
      computed[work.request] += std::ssize(work.tokens);
    }
    EXPECT_LE(num_tokens, 7);
    EXPECT_GT(num_tokens, 0) << "a step that is not idle computes something";
  }
  // The last token drawn is never computed: nothing follows it.
  for (int64_t request = 1; request <= 8; ++request) {
    EXPECT_EQ(computed[request], request * 5 + 5);
  }
}

TEST(StepPlan, updates_come_in_the_order_of_the_work) {
  SchedulerDriver driver(kSixteen, 64);
  for (uint64_t request : {4, 2, 3}) driver.enqueue(request, {.max_tokens = request == 2 ? 1 : 3});
  std::vector<uint64_t> order;
  const auto draw = [](uint64_t request) {
    return std::vector<TokenId>{static_cast<TokenId>(100 + request)};
  };
  for (const RequestUpdate& update : driver.step(draw).updates) {
    order.push_back(update.request.value);
    ASSERT_EQ(update.tokens.size(), 1u);
    EXPECT_EQ(update.tokens.front().token, static_cast<TokenId>(100 + update.request.value));
    EXPECT_EQ(update.finished.has_value(), update.request.value == 2);
  }
  EXPECT_THAT(order, ElementsAre(4, 2, 3));
  EXPECT_EQ(describe(driver.step().work), "4: 1+1!, 3: 1+1!");
}

TEST(StepPlan, stop_tokens_are_masked_until_min_tokens_are_drawn) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, {.max_tokens = 4, .min_tokens = 2, .stop_token_ids = {20, 21}});
  for (int num_drawn = 0; num_drawn < 4; ++num_drawn) {
    const StepRecord record = driver.step();
    ASSERT_EQ(record.work.size(), 1u);
    if (num_drawn < 2) {
      EXPECT_THAT(record.work.front().masked,
                  testing::UnorderedElementsAre(20, 21, kEndToken, kOtherEnd));
    } else {
      EXPECT_TRUE(record.work.front().masked.empty()) << num_drawn;
    }
  }
}

TEST(StepPlan, a_request_that_ignores_eos_masks_its_own_stop_tokens_only) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, {.min_tokens = 1, .stop_token_ids = {20}, .ignore_eos = true});
  EXPECT_THAT(driver.step().work.front().masked, ElementsAre(20));
  driver.enqueue(2, {});
  const StepRecord record = driver.step();
  EXPECT_TRUE(record.work.back().masked.empty());
}

TEST(StepPlanDeathTest, a_commit_out_of_order_or_with_missing_results_stops_the_process) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, {});
  std::vector<RequestUpdate> updates;
  const StepPlan first = driver.scheduler().plan(absl::UnixEpoch(), updates);
  EXPECT_DEATH(driver.scheduler().commit(first, StepResult(), updates), "0 results for 1 sequence");
  StepResult drew_nothing;
  drew_nothing.sequences.resize(1);
  EXPECT_DEATH(driver.scheduler().commit(first, drew_nothing, updates), "request 1 drew 0 tokens");
  const StepPlan second = driver.scheduler().plan(absl::UnixEpoch(), updates);
  EXPECT_DEATH(driver.scheduler().commit(second, drew_nothing, updates),
               "commit of step 2 after step 0");
  EXPECT_DEATH(driver.scheduler().plan(absl::UnixEpoch(), updates),
               "2 steps are planned and not committed");
}

}  // namespace
}  // namespace dhs
