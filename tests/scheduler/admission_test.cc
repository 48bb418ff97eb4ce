// Who runs: order of arrival, limits, and what is freed when a request leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler_driver.h"

namespace dhs {
namespace {

using testing::ElementsAre;

constexpr SchedulerConfig kFour = {.max_running = 4, .max_batched_tokens = 64};

TEST(Admission, requests_start_in_the_order_they_came) {
  SchedulerDriver driver({.max_running = 2, .max_batched_tokens = 64}, 64);
  for (uint64_t request : {5, 3, 9}) driver.enqueue(request, {.prompt_tokens = 2, .max_tokens = 2});
  EXPECT_EQ(driver.scheduler().num_queued(), 3);
  EXPECT_EQ(describe(driver.step().work), "5: 0+2!, 3: 0+2!");
  EXPECT_EQ(driver.scheduler().num_queued(), 1);
  EXPECT_EQ(describe(driver.step().work), "5: 2+1!, 3: 2+1!");
  EXPECT_EQ(describe(driver.step().work), "9: 0+2!");
}

TEST(Admission, never_runs_more_than_max_running) {
  SchedulerDriver driver({.max_running = 3, .max_batched_tokens = 64}, 64);
  for (uint64_t request = 1; request <= 10; ++request) {
    driver.enqueue(request, {.max_tokens = static_cast<int32_t>(1 + request % 4)});
  }
  size_t most = 0;
  while (!driver.scheduler().idle()) {
    most = std::max(most, driver.step().work.size());
    EXPECT_LE(driver.scheduler().num_running(), 3);
  }
  EXPECT_EQ(most, 3u);
}

TEST(Admission, one_that_does_not_fit_holds_those_behind_it) {
  SchedulerDriver driver(kFour, 4);
  driver.enqueue(1, {.prompt_tokens = 190, .max_tokens = 2, .ignore_eos = true});  // 3 blocks
  driver.enqueue(2, {.prompt_tokens = 190, .max_tokens = 2, .ignore_eos = true});
  driver.enqueue(3, {.prompt_tokens = 10, .max_tokens = 2});  // would fit beside the first
  bool second_ran = false;
  while (!second_ran) {
    bool third_ran = false;
    for (const PlannedWork& work : driver.step().work) {
      third_ran |= work.request == 3;
      second_ran |= work.request == 2;
    }
    EXPECT_TRUE(second_ran || !third_ran) << "a later request overtook one that waits for memory";
  }
  EXPECT_EQ(driver.scheduler().num_queued(), 0);
}

TEST(Admission, a_request_gets_memory_for_its_final_length_at_once) {
  SchedulerDriver driver(kFour, 64);
  driver.enqueue(1, {.prompt_tokens = 100, .max_tokens = 50});
  const StepRecord record = driver.step();
  EXPECT_EQ(record.work.front().memory_tokens, 150);
  EXPECT_EQ(driver.kv().usage().host_blocks_used, 3);
}

TEST(Admission, a_finished_requests_memory_admits_the_next_and_its_blocks_retire_once) {
  SchedulerDriver driver(kFour, 1);
  driver.enqueue(1, {.max_tokens = 1});
  driver.enqueue(2, {.max_tokens = 1});
  StepRecord record = driver.step();
  EXPECT_EQ(describe(record.work), "1: 0+1!");
  EXPECT_TRUE(record.retired_blocks.empty());
  record = driver.step();
  EXPECT_EQ(describe(record.work), "2: 0+1!");
  EXPECT_THAT(record.retired_blocks, ElementsAre(HostBlockId(0)));
  record = driver.step();
  EXPECT_TRUE(record.work.empty());
  EXPECT_THAT(record.retired_blocks, ElementsAre(HostBlockId(0)));
  EXPECT_TRUE(driver.step().retired_blocks.empty());
}

TEST(Admission, counts_what_waits_and_lists_running_before_queued) {
  SchedulerDriver driver({.max_running = 1, .max_batched_tokens = 64}, 64);
  driver.enqueue(4, {.prompt_tokens = 10});
  driver.enqueue(2, {.prompt_tokens = 20});
  driver.enqueue(6, {.prompt_tokens = 30});
  EXPECT_EQ(driver.scheduler().num_queued_tokens(), 60);
  driver.step();
  EXPECT_EQ(driver.scheduler().num_queued_tokens(), 50);
  EXPECT_THAT(driver.scheduler().requests(), ElementsAre(RequestId(4), RequestId(2), RequestId(6)));
}

TEST(Admission, an_idle_scheduler_plans_nothing_and_commits_it) {
  SchedulerDriver driver(kFour, 4);
  EXPECT_TRUE(driver.scheduler().idle());
  const StepRecord record = driver.step();
  EXPECT_TRUE(record.work.empty());
  EXPECT_TRUE(record.updates.empty());
}

TEST(AdmissionDeathTest, a_request_without_seed_or_prompt_stops_the_process) {
  SchedulerDriver driver(kFour, 4);
  GenerateRequest no_seed{.prompt = {1}};
  no_seed.sampling.max_tokens = 1;
  EXPECT_DEATH(driver.scheduler().enqueue(RequestId(1), no_seed), "request 1 was not validated");
  GenerateRequest no_prompt;
  no_prompt.sampling.seed = 1;
  no_prompt.sampling.max_tokens = 1;
  EXPECT_DEATH(driver.scheduler().enqueue(RequestId(2), no_prompt), "request 2 was not validated");
}

TEST(AdmissionDeathTest, more_running_requests_than_tokens_in_a_step_stop_the_process) {
  EXPECT_DEATH(SchedulerDriver({.max_running = 9, .max_batched_tokens = 8}, 4),
               "max_running 9 exceeds max_batched_tokens 8");
}

}  // namespace
}  // namespace dhs
