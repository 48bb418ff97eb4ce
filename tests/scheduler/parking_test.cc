// Parking: who leaves the device when it is short of room, and that nothing is lost by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "scheduler_driver.h"

namespace dhs {
namespace {

using testing::ElementsAre;

constexpr SchedulerConfig kTwo = {.max_running = 2, .max_batched_tokens = 64};

int64_t times_parked(const std::vector<RequestUpdate>& updates, uint64_t request) {
  for (const RequestUpdate& update : updates) {
    if (update.request.value == request && update.finished)
      return update.finished->usage.times_parked;
  }
  return -1;
}

// Every token a request was told of, as drawn: its number in the sequence.
std::map<uint64_t, std::vector<TokenId>> tokens_of(const std::vector<RequestUpdate>& updates) {
  std::map<uint64_t, std::vector<TokenId>> tokens;
  for (const RequestUpdate& update : updates) {
    for (const TokenOutput& output : update.tokens)
      tokens[update.request.value].push_back(output.token);
  }
  return tokens;
}

TEST(Priority, decides_who_waits_and_arrival_among_equals) {
  SchedulerDriver driver({.max_running = 1, .max_batched_tokens = 16}, 64);
  driver.enqueue(1, {.max_tokens = 1});
  driver.enqueue(2, {.max_tokens = 1});
  driver.enqueue(3, {.max_tokens = 1, .priority = 5});
  driver.enqueue(4, {.max_tokens = 1, .priority = 5});
  driver.enqueue(5, {.max_tokens = 1, .priority = -1});
  for (const char* expected : {"3: 0+1!", "4: 0+1!", "1: 0+1!", "2: 0+1!", "5: 0+1!"}) {
    EXPECT_EQ(describe(driver.step().work), expected);
  }
}

TEST(Priority, parks_the_latest_of_the_lowest_and_it_goes_on_where_it_was) {
  SchedulerDriver driver(kTwo, 64);
  driver.enqueue(1, {.prompt_tokens = 3, .max_tokens = 6});
  driver.enqueue(2, {.prompt_tokens = 3, .max_tokens = 6});
  EXPECT_EQ(describe(driver.step().work), "1: 0+3!, 2: 0+3!");
  driver.enqueue(3, {.prompt_tokens = 3, .max_tokens = 2, .priority = 1});
  EXPECT_EQ(describe(driver.step().work), "1: 3+1!, 3: 0+3!") << "beside decodes come prompts";
  EXPECT_EQ(driver.scheduler().num_parked(), 1);
  EXPECT_EQ(driver.scheduler().num_queued(), 0);
  EXPECT_EQ(describe(driver.step().work), "3: 3+1!, 1: 4+1!");
  EXPECT_EQ(describe(driver.step().work), "1: 5+1!, 2: 3+1!");
  const auto updates = driver.finish_all();
  EXPECT_EQ(times_parked(updates, 1), 0);
  EXPECT_EQ(times_parked(updates, 2), 1);
  EXPECT_EQ(driver.scheduler().num_preemptions(), 1);
}

TEST(Priority, equals_are_never_parked_for_each_other) {
  SchedulerDriver driver({.max_running = 1, .max_batched_tokens = 16}, 64);
  driver.enqueue(1, {.max_tokens = 5, .priority = 2});
  driver.step();
  driver.enqueue(2, {.max_tokens = 1, .priority = 2});
  EXPECT_EQ(describe(driver.step().work), "1: 1+1!");
}

TEST(Priority, parked_requests_go_on_past_one_that_waits_for_their_host_blocks) {
  SchedulerDriver driver(kTwo, 4);
  driver.enqueue(1, {.prompt_tokens = 60, .max_tokens = 100});  // 3 of 4 host blocks
  driver.step();
  driver.scheduler().set_paused(RequestId(1), true);
  EXPECT_TRUE(driver.step().work.empty());
  driver.enqueue(2, {.prompt_tokens = 60, .max_tokens = 60, .priority = 1});  // wants 2
  driver.enqueue(3, {.prompt_tokens = 1, .max_tokens = 1});                   // behind it
  driver.scheduler().set_paused(RequestId(1), false);
  EXPECT_EQ(describe(driver.step().work), "1: 60+1!");
  EXPECT_EQ(driver.scheduler().num_queued(), 2);
  driver.finish_all();
}

TEST(Priority, nobody_is_parked_for_one_that_would_not_fit_even_then) {
  // 8 chunks: a request of 900 tokens needs 4 of index items and 1 + 1 of rows.
  SchedulerDriver driver({.max_running = 4, .max_batched_tokens = 512}, 20, 16);
  driver.enqueue(1, {.prompt_tokens = 600, .max_tokens = 100});  // 11 of 20 host blocks
  driver.step();
  driver.enqueue(2, {.prompt_tokens = 700, .max_tokens = 100, .priority = 1});  // wants 13
  EXPECT_EQ(describe(driver.step().work), "1: 512+88!");
  EXPECT_EQ(driver.scheduler().num_parked(), 0) << "parking frees no host block";
}

// 7 chunks: 1 + 1 of rows for all, 5 of index items, 20 of them.
TEST(Pressure, parks_the_last_when_requests_outgrow_the_device_and_nothing_is_lost) {
  SchedulerDriver driver({.max_running = 4, .max_batched_tokens = 2000}, 100, 7);
  std::map<uint64_t, TokenId> next;
  auto count_up = [&](uint64_t request) { return std::vector<TokenId>{100 + next[request]++}; };
  driver.enqueue(1, {.prompt_tokens = 500, .max_tokens = 500});  // 8 items, 16 in the end
  driver.enqueue(2, {.prompt_tokens = 500, .max_tokens = 500});
  std::vector<RequestUpdate> updates;
  int64_t most_parked = 0;
  while (!driver.scheduler().idle()) {
    const StepRecord record = driver.step(count_up);
    most_parked = std::max(most_parked, driver.scheduler().num_parked());
    for (const RequestUpdate& update : record.updates) updates.push_back(update);
  }
  EXPECT_EQ(most_parked, 1);
  EXPECT_EQ(times_parked(updates, 1), 0) << "the first in order always goes on";
  EXPECT_EQ(times_parked(updates, 2), 1);
  for (const auto& [request, tokens] : tokens_of(updates)) {
    ASSERT_EQ(tokens.size(), 500u) << "request " << request;
    for (size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], static_cast<TokenId>(100 + i));
  }
  EXPECT_EQ(driver.kv().usage().host_blocks_used, 0);
}

TEST(Pause, parks_a_running_request_until_it_may_go_on_and_lets_others_pass) {
  SchedulerDriver driver(kTwo, 64);
  driver.enqueue(1, {.prompt_tokens = 3, .max_tokens = 4});
  driver.step();
  driver.scheduler().set_paused(RequestId(1), true);
  EXPECT_TRUE(driver.step().work.empty());
  EXPECT_TRUE(driver.scheduler().is_at_rest());
  EXPECT_FALSE(driver.scheduler().idle());
  EXPECT_EQ(driver.kv().usage().chunks_index, 0) << "it holds nothing on the device";
  driver.enqueue(2, {.prompt_tokens = 2, .max_tokens = 2});
  EXPECT_FALSE(driver.scheduler().is_at_rest());
  EXPECT_EQ(describe(driver.step().work), "2: 0+2!");
  driver.scheduler().set_paused(RequestId(1), false);
  EXPECT_EQ(describe(driver.step().work), "1: 3+1!, 2: 2+1!");
  EXPECT_EQ(times_parked(driver.finish_all(), 1), 1);
  EXPECT_EQ(driver.scheduler().num_preemptions(), 0) << "a pause is none";
}

TEST(Pause, a_parked_request_still_ends_by_cancel_and_deadline) {
  SchedulerDriver driver(kTwo, 64);
  const absl::Time later = absl::UnixEpoch() + absl::Seconds(5);
  driver.enqueue(1, {.max_tokens = 9});
  driver.enqueue(2, {.max_tokens = 9, .deadline = later});
  driver.step();
  for (uint64_t id : {1, 2}) driver.scheduler().set_paused(RequestId(id), true);
  driver.step();
  EXPECT_EQ(driver.scheduler().next_deadline(), later);
  EXPECT_TRUE(driver.scheduler()
                  .finish(RequestId(1), FinishReason::kCancelled, absl::OkStatus())
                  .has_value());
  driver.set_now(later);
  const StepRecord record = driver.step();
  ASSERT_NE(record.update_of(2), nullptr);
  EXPECT_EQ(record.update_of(2)->finished->reason, FinishReason::kDeadline);
  EXPECT_EQ(driver.kv().usage().host_blocks_used, 0);
}

TEST(PrefixHit, begins_behind_the_cached_tokens_and_says_how_many_they_were) {
  SchedulerDriver driver({.max_running = 4, .max_batched_tokens = 256}, 64);
  driver.enqueue(1, {.prompt_tokens = 200, .max_tokens = 2});
  EXPECT_EQ(describe(driver.step().work), "1: 0+200!");
  driver.enqueue(2, {.prompt_tokens = 150, .max_tokens = 2, .text = 1});
  EXPECT_EQ(describe(driver.step().work), "1: 200+1!, 2: 128+22!")
      << "what a running request has computed is there for others";
  const auto updates = driver.finish_all();
  EXPECT_EQ(updates.back().finished->usage.cached_prompt_tokens, 128);
  EXPECT_EQ(updates.back().finished->usage.prompt_tokens, 150);
}

TEST(PrefixHit, covers_generated_tokens_too) {
  SchedulerDriver driver({.max_running = 4, .max_batched_tokens = 256}, 64);
  TokenId next = 1060;  // as if the prompt went on
  auto draw = [&](uint64_t) { return std::vector<TokenId>{next++}; };
  driver.enqueue(1, {.prompt_tokens = 60, .max_tokens = 10});
  while (!driver.scheduler().idle()) driver.step(draw);
  driver.enqueue(2, {.prompt_tokens = 80, .max_tokens = 2, .text = 1});
  EXPECT_EQ(describe(driver.step().work), "2: 64+16!");
}

}  // namespace
}  // namespace dhs
