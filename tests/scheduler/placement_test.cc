// Several ranks that hold requests of their own: which one a request goes to, and what each plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dhisparse/scheduler.h"

namespace dhs {
namespace {

std::optional<int> choose(std::vector<RankLoad> ranks) { return choose_rank(ranks); }

TEST(Placement, takes_the_rank_with_the_most_optional_memory_per_running_request) {
  EXPECT_EQ(choose({{true, 10, 0}, {true, 30, 1}}), 1) << "10 against 15";
  EXPECT_EQ(choose({{true, 10, 0}, {true, 30, 2}}), 0) << "both 10: the lowest";
  EXPECT_EQ(choose({{true, 10, 0}, {true, 30, 3}}), 0) << "10 against 7.5";
}

TEST(Placement, takes_the_rank_that_has_most_of_the_prompt_cached_whatever_its_memory) {
  EXPECT_EQ(choose({{true, 90, 0}, {true, 10, 5, 128}}), 1);
  EXPECT_EQ(choose({{true, 90, 0, 64}, {true, 10, 5, 128}}), 1);
  EXPECT_EQ(choose({{true, 90, 0, 128}, {true, 10, 5, 64}}), 0);
  EXPECT_EQ(choose({{true, 90, 0}, {false, 10, 5, 128}}), 0);
}

TEST(Placement, never_takes_a_rank_that_cannot_admit_the_request) {
  EXPECT_EQ(choose({{false, 100, 0}, {true, 1, 9}}), 1);
  EXPECT_EQ(choose({{false, 100, 0}, {false, 1, 9}}), std::nullopt);
  EXPECT_EQ(choose({}), std::nullopt);
}

TEST(Placement, takes_a_rank_without_optional_memory_when_it_is_the_only_one) {
  EXPECT_EQ(choose({{false, 5, 0}, {true, 0, 3}}), 1);
}

class TwoRanks : public testing::Test {
 protected:
  static constexpr SchedulerConfig kConfig = {.max_running = 2, .max_batched_tokens = 8};

  void enqueue(uint64_t id, size_t prompt_tokens) {
    GenerateRequest request;
    request.prompt.assign(prompt_tokens, 1);
    request.sampling.max_tokens = 3;
    request.sampling.seed = id;
    scheduler_.enqueue(RequestId(id), std::move(request));
  }
  // "1: 3, 2: 5 | 3: 8": requests and rows of rank 0, then of rank 1.
  std::string step() {
    std::vector<RequestUpdate> updates;
    const StepPlan plan = scheduler_.plan(absl::UnixEpoch(), updates);
    std::string text;
    StepResult result;
    for (const RankPlan& rank : plan.ranks) {
      if (&rank != &plan.ranks.front()) text += " | ";
      for (const SequenceWork& work : rank.work) {
        absl::StrAppend(&text, &work == &rank.work.front() ? "" : ", ", work.request.value, ": ",
                        work.tokens.size());
        auto& sequence = result.sequences.emplace_back();
        // The token says whose it is.
        if (work.wants_token) {
          sequence.tokens.push_back({static_cast<TokenId>(1000 + work.request.value), 0.0f, {}});
        }
      }
    }
    scheduler_.commit(plan, result, updates);
    for (const RequestUpdate& update : updates) {
      for (const TokenOutput& output : update.tokens) {
        EXPECT_EQ(output.token, static_cast<TokenId>(1000 + update.request.value));
      }
    }
    EXPECT_EQ(scheduler_.check_invariants(), "");
    return text;
  }

  static KvGeometry geometry() {
    const std::vector<int32_t> layers = {1, 2};
    return make_geometry(layers, 16, 512, 4);
  }
  KvManager first_{geometry(), {16, 64, 4096}, {}};
  KvManager second_{geometry(), {16, 64, 4096}, {}};
  Scheduler scheduler_{kConfig, {&first_, &second_}, {}};
};

TEST_F(TwoRanks, take_turns_with_equal_requests_and_have_a_budget_each) {
  for (uint64_t id = 1; id <= 4; ++id) enqueue(id, 6);
  EXPECT_EQ(step(), "1: 4, 3: 4 | 2: 4, 4: 4");
  EXPECT_EQ(step(), "1: 2, 3: 2 | 2: 2, 4: 2");
  EXPECT_EQ(scheduler_.num_running(), 4);
}

TEST_F(TwoRanks, run_max_running_each_and_the_next_waits_for_either) {
  for (uint64_t id = 1; id <= 5; ++id) enqueue(id, 1);
  EXPECT_EQ(step(), "1: 1, 3: 1 | 2: 1, 4: 1");
  EXPECT_EQ(scheduler_.num_queued(), 1);
  scheduler_.finish(RequestId(4), FinishReason::kCancelled, absl::OkStatus());
  EXPECT_EQ(step(), "1: 1, 3: 1 | 2: 1, 5: 1");
}

TEST_F(TwoRanks, keep_a_request_where_it_started_and_free_its_memory_there) {
  enqueue(1, 5);
  enqueue(2, 5);
  EXPECT_EQ(step(), "1: 5 | 2: 5");
  EXPECT_EQ(first_.usage().host_blocks_used, 1);
  EXPECT_EQ(second_.usage().host_blocks_used, 1);
  scheduler_.finish(RequestId(1), FinishReason::kCancelled, absl::OkStatus());
  EXPECT_EQ(first_.usage().host_blocks_used, 0);
  EXPECT_EQ(step(), " | 2: 1");
  EXPECT_EQ(step(), " | 2: 1");
  EXPECT_TRUE(scheduler_.idle());
  EXPECT_EQ(step(), " | ");
}

TEST_F(TwoRanks, send_a_request_to_where_half_of_its_prompt_is_cached) {
  enqueue(1, 70);
  enqueue(2, 1);
  while (!scheduler_.idle()) step();
  enqueue(3, 1);
  enqueue(4, 70);  // memory alone says the second rank
  EXPECT_EQ(step(), "3: 1, 4: 6 | ");
  scheduler_.finish(RequestId(4), FinishReason::kCancelled, absl::OkStatus());
  enqueue(5, 200);  // 64 of 200 are too few
  EXPECT_EQ(step(), "3: 1 | 5: 8");
}

}  // namespace
}  // namespace dhs
