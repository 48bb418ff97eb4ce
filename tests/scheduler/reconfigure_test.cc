// Other limits, other residency while requests run: who has no place is parked and goes on later.
#include <gtest/gtest.h>

#include "scheduler_driver.h"

namespace dhs {
namespace {

constexpr SchedulerConfig kFour = {.max_running = 4, .max_batched_tokens = 64};

TEST(Reconfigure, fewer_places_park_the_last_in_order_and_more_bring_them_back) {
  SchedulerDriver driver(kFour, 64);
  for (uint64_t id = 1; id <= 4; ++id) driver.enqueue(id, {.prompt_tokens = 3, .max_tokens = 6});
  driver.step();
  driver.scheduler().set_config({.max_running = 2, .max_batched_tokens = 2});
  EXPECT_EQ(describe(driver.step().work), "1: 3+1!, 2: 3+1!");
  EXPECT_EQ(driver.scheduler().num_parked(), 2);
  EXPECT_EQ(driver.scheduler().num_parks(), 2);
  driver.scheduler().set_config(kFour);
  EXPECT_EQ(describe(driver.step().work), "1: 4+1!, 2: 4+1!, 3: 3+1!, 4: 3+1!");
  EXPECT_EQ(driver.scheduler().num_resumes(), 2);
  EXPECT_EQ(driver.scheduler().config().max_running, 4);
  for (const RequestUpdate& update : driver.finish_all()) {
    if (!update.finished) continue;
    EXPECT_EQ(update.finished->usage.completion_tokens, 6);
    EXPECT_EQ(update.finished->usage.times_parked, update.request.value <= 2 ? 0 : 1);
  }
}

TEST(Reconfigure, the_token_limits_hold_from_the_next_step_on) {
  SchedulerDriver driver(kFour, 64);
  driver.enqueue(1, {.prompt_tokens = 40, .max_tokens = 2});
  driver.scheduler().set_config({.max_running = 4, .max_batched_tokens = 16});
  EXPECT_EQ(describe(driver.step().work), "1: 0+16");
  driver.scheduler().set_config(kFour);
  EXPECT_EQ(describe(driver.step().work), "1: 16+24!");
}

TEST(Reconfigure, residency_that_does_not_hold_all_parks_until_it_does) {
  // Top-k 4: protected rows are 5 a request, one chunk of each group holds them for many. With
  // fixed rows of 600, three requests of 600 tokens take 1800: 8 and 15 chunks, and 8 of index.
  SchedulerDriver driver({.max_running = 4, .max_batched_tokens = 2048}, 64, 24);
  for (uint64_t id = 1; id <= 3; ++id) driver.enqueue(id, {.prompt_tokens = 600, .max_tokens = 40});
  driver.step();
  EXPECT_EQ(driver.scheduler().num_running(), 3);
  driver.scheduler().set_residency({.mode = ResidencyMode::kFixed, .fixed_rows_per_request = 600});
  EXPECT_EQ(driver.scheduler().num_running(), 2);
  EXPECT_EQ(describe(driver.step().work), "1: 600+1!, 2: 600+1!");
  driver.scheduler().set_residency({});
  EXPECT_EQ(describe(driver.step().work), "1: 601+1!, 2: 601+1!, 3: 600+1!");
  driver.finish_all();
  EXPECT_EQ(driver.kv().usage().host_blocks_used, 0);
}

TEST(Reconfigure, the_time_in_the_queue_ends_with_the_first_step) {
  SchedulerDriver driver({.max_running = 1, .max_batched_tokens = 64}, 64);
  GenerateRequest request;
  request.prompt = {1, 2};
  request.sampling.max_tokens = 1;
  request.sampling.seed = 1;
  request.arrived = absl::UnixEpoch() + absl::Seconds(1);
  driver.enqueue(1, {.max_tokens = 3});
  driver.scheduler().enqueue(RequestId(2), std::move(request));
  std::vector<RequestUpdate> updates;
  for (int second = 2; second < 8; ++second) {
    driver.set_now(absl::UnixEpoch() + absl::Seconds(second));
    for (RequestUpdate& update : driver.step().updates) updates.push_back(std::move(update));
  }
  ASSERT_FALSE(updates.empty());
  ASSERT_TRUE(updates.back().finished.has_value());
  EXPECT_EQ(updates.back().request.value, 2u);
  EXPECT_EQ(updates.back().finished->usage.queued, absl::Seconds(4));
}

}  // namespace
}  // namespace dhs
