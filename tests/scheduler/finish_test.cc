// How requests end, and what their owners are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "scheduler_driver.h"

namespace dhs {
namespace {

using testing::ElementsAre;

constexpr SchedulerConfig kSixteen = {.max_running = 4, .max_batched_tokens = 16};

std::vector<TokenId> tokens_of(const RequestUpdate& update) {
  std::vector<TokenId> tokens;
  for (const TokenOutput& output : update.tokens) tokens.push_back(output.token);
  return tokens;
}

struct Ending {
  std::vector<TokenId> output;
  Finished finished;
};

// Runs one request whose draws are `script`, then kPlainToken for ever.
Ending run_alone(const Wanted& wanted, const std::vector<TokenId>& script) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, wanted);
  size_t num_drawn = 0;
  Ending ending;
  while (!driver.scheduler().idle()) {
    const StepRecord record = driver.step([&](uint64_t) {
      const TokenId token = num_drawn < script.size() ? script[num_drawn] : kPlainToken;
      ++num_drawn;
      return std::vector<TokenId>{token};
    });
    for (const RequestUpdate& update : record.updates) {
      for (TokenId token : tokens_of(update)) ending.output.push_back(token);
      if (update.finished.has_value()) ending.finished = *update.finished;
    }
  }
  EXPECT_EQ(driver.kv().usage().host_blocks_used, 0);
  return ending;
}

TEST(Finish, a_stop_token_of_the_request_ends_it_and_is_part_of_the_output) {
  const Ending ending = run_alone({.max_tokens = 9, .stop_token_ids = {20, 21}}, {30, 21, 31});
  EXPECT_THAT(ending.output, ElementsAre(30, 21));
  EXPECT_EQ(ending.finished.reason, FinishReason::kStop);
  EXPECT_EQ(ending.finished.stop_token, 21);
  EXPECT_TRUE(ending.finished.error.ok());
}

TEST(Finish, each_end_token_of_the_model_ends_a_request) {
  for (TokenId end : {kEndToken, kOtherEnd}) {
    const Ending ending = run_alone({.max_tokens = 9}, {30, end});
    EXPECT_THAT(ending.output, ElementsAre(30, end));
    EXPECT_EQ(ending.finished.reason, FinishReason::kStop);
    EXPECT_EQ(ending.finished.stop_token, end);
  }
}

TEST(Finish, ignore_eos_runs_past_the_models_end_but_not_past_the_requests_stop_tokens) {
  const Ending past = run_alone({.max_tokens = 3, .ignore_eos = true}, {kEndToken, kOtherEnd, 30});
  EXPECT_THAT(past.output, ElementsAre(kEndToken, kOtherEnd, 30));
  EXPECT_EQ(past.finished.reason, FinishReason::kLength);
  EXPECT_EQ(past.finished.stop_token, std::nullopt);
  const Ending stopped =
      run_alone({.max_tokens = 9, .stop_token_ids = {20}, .ignore_eos = true}, {kEndToken, 20});
  EXPECT_EQ(stopped.finished.stop_token, 20);
  // A stop token that happens to be the model's end still counts as the request's own.
  const Ending own =
      run_alone({.max_tokens = 9, .stop_token_ids = {kEndToken}, .ignore_eos = true}, {kEndToken});
  EXPECT_EQ(own.finished.stop_token, kEndToken);
}

TEST(Finish, length_ends_a_request_after_exactly_max_tokens) {
  for (int32_t max_tokens : {1, 2, 5}) {
    const Ending ending = run_alone({.prompt_tokens = 20, .max_tokens = max_tokens}, {});
    EXPECT_EQ(std::ssize(ending.output), max_tokens);
    EXPECT_EQ(ending.finished.reason, FinishReason::kLength);
    EXPECT_EQ(ending.finished.stop_token, std::nullopt);
  }
}

TEST(Finish, a_stop_token_at_the_last_place_counts_as_a_stop) {
  const Ending ending = run_alone({.max_tokens = 2}, {30, kEndToken});
  EXPECT_EQ(ending.finished.reason, FinishReason::kStop);
}

TEST(Finish, usage_counts_prompt_completion_and_rows_of_every_step) {
  SchedulerDriver driver(kSixteen, 64);
  driver.set_rows(100, 7);
  driver.enqueue(1, {.prompt_tokens = 40, .max_tokens = 3});  // three chunks, then two decodes
  const std::vector<RequestUpdate> updates = driver.finish_all();
  const Usage& usage = updates.back().finished->usage;
  EXPECT_EQ(usage.prompt_tokens, 40);
  EXPECT_EQ(usage.completion_tokens, 3);
  EXPECT_EQ(usage.cached_prompt_tokens, 0);
  EXPECT_EQ(usage.rows_selected, 500);
  EXPECT_EQ(usage.rows_fetched, 35);
}

TEST(Finish, each_request_counts_its_own_usage) {
  SchedulerDriver driver(kSixteen, 64);
  driver.set_rows(10, 1);
  for (uint64_t request = 1; request <= 3; ++request) {
    driver.enqueue(request, {.prompt_tokens = static_cast<int32_t>(request),
                             .max_tokens = static_cast<int32_t>(2 * request)});
  }
  std::map<uint64_t, Usage> usage;
  for (const RequestUpdate& update : driver.finish_all()) {
    if (update.finished.has_value()) usage[update.request.value] = update.finished->usage;
  }
  ASSERT_EQ(usage.size(), 3u);
  for (int64_t request = 1; request <= 3; ++request) {
    EXPECT_EQ(usage[request].prompt_tokens, request);
    EXPECT_EQ(usage[request].completion_tokens, 2 * request);
    EXPECT_EQ(usage[request].rows_selected, 10 * 2 * request);
  }
}

TEST(Cancel, takes_a_queued_request_out_and_keeps_the_order_of_the_rest) {
  SchedulerDriver driver({.max_running = 1, .max_batched_tokens = 16}, 64);
  for (uint64_t request : {1, 2, 3}) driver.enqueue(request, {.prompt_tokens = 2, .max_tokens = 1});
  const auto update =
      driver.scheduler().finish(RequestId(2), FinishReason::kCancelled, absl::OkStatus());
  ASSERT_TRUE(update.has_value());
  EXPECT_EQ(update->request, RequestId(2));
  EXPECT_TRUE(update->tokens.empty());
  EXPECT_EQ(update->finished->reason, FinishReason::kCancelled);
  EXPECT_EQ(update->finished->usage.prompt_tokens, 2);
  EXPECT_EQ(update->finished->usage.completion_tokens, 0);
  EXPECT_EQ(describe(driver.step().work), "1: 0+2!");
  EXPECT_EQ(describe(driver.step().work), "3: 0+2!");
}

TEST(Cancel, frees_all_a_running_request_holds_and_reports_what_it_used) {
  SchedulerDriver driver(kSixteen, 64);
  driver.set_rows(10, 2);
  driver.enqueue(1, {.prompt_tokens = 100, .max_tokens = 50});
  driver.enqueue(2, {.prompt_tokens = 3, .max_tokens = 50});
  for (int i = 0; i < 2; ++i) driver.step();
  EXPECT_EQ(driver.kv().usage().host_blocks_used, 4);
  const auto update =
      driver.scheduler().finish(RequestId(1), FinishReason::kCancelled, absl::OkStatus());
  ASSERT_TRUE(update.has_value());
  EXPECT_EQ(update->finished->usage.rows_selected, 20);
  EXPECT_EQ(update->finished->usage.rows_fetched, 4);
  EXPECT_EQ(driver.kv().usage().host_blocks_used, 1);
  const StepRecord record = driver.step();
  EXPECT_EQ(describe(record.work), "2: 4+1!");
  EXPECT_EQ(record.retired_blocks.size(), 3u);
}

TEST(Cancel, of_an_unknown_or_ended_request_is_nothing) {
  SchedulerDriver driver(kSixteen, 64);
  auto cancel = [&](uint64_t request) {
    return driver.scheduler().finish(RequestId(request), FinishReason::kCancelled,
                                     absl::OkStatus());
  };
  EXPECT_FALSE(cancel(1).has_value());
  driver.enqueue(1, {.max_tokens = 1});
  EXPECT_TRUE(cancel(1).has_value());
  EXPECT_FALSE(cancel(1).has_value());
  driver.enqueue(2, {.max_tokens = 1});
  driver.finish_all();
  EXPECT_FALSE(cancel(2).has_value());
  EXPECT_TRUE(driver.scheduler().idle());
}

TEST(Cancel, an_error_travels_with_the_end) {
  SchedulerDriver driver(kSixteen, 64);
  driver.enqueue(1, {});
  const absl::Status broken = absl::InternalError("logits are not finite");
  const auto update = driver.scheduler().finish(RequestId(1), FinishReason::kError, broken);
  ASSERT_TRUE(update.has_value());
  EXPECT_EQ(update->finished->reason, FinishReason::kError);
  EXPECT_EQ(update->finished->error, broken);
}

TEST(Deadline, ends_queued_and_running_requests_at_their_time_and_not_before) {
  const absl::Time start = absl::UnixEpoch();
  SchedulerDriver driver({.max_running = 1, .max_batched_tokens = 16}, 64);
  driver.enqueue(1, {.max_tokens = 40, .deadline = start + absl::Seconds(10)});
  driver.enqueue(2, {.max_tokens = 40, .deadline = start + absl::Seconds(5)});
  driver.enqueue(3, {.max_tokens = 40});
  driver.set_now(start + absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_EQ(driver.step().update_of(2), nullptr);

  driver.set_now(start + absl::Seconds(5));
  StepRecord record = driver.step();
  ASSERT_NE(record.update_of(2), nullptr);
  EXPECT_EQ(record.update_of(2)->finished->reason, FinishReason::kDeadline);
  EXPECT_EQ(describe(record.work), "1: 1+1!");

  driver.set_now(start + absl::Seconds(11));
  record = driver.step();
  ASSERT_NE(record.update_of(1), nullptr);
  EXPECT_EQ(record.update_of(1)->finished->reason, FinishReason::kDeadline);
  EXPECT_EQ(record.update_of(1)->finished->usage.completion_tokens, 2);
  // Its place and memory serve the next request in the very same step.
  EXPECT_EQ(describe(record.work), "3: 0+1!");
  EXPECT_EQ(record.retired_blocks.size(), 1u);
}

}  // namespace
}  // namespace dhs
