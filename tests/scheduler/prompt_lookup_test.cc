// Prompt lookup by itself, against a search by brute force, and in the scheduler.
#include "scheduler/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "scheduler_driver.h"

namespace dhs {
namespace {

using Tokens = std::vector<TokenId>;

Tokens proposed(const Tokens& tokens, int64_t count, int ngram_min = 2, int ngram_max = 4) {
  return PromptLookup(ngram_min, ngram_max).propose(tokens, count);
}

// As the contract says it.
Tokens searched(const Tokens& tokens, int64_t count, int ngram_min, int ngram_max) {
  const int64_t size = std::ssize(tokens);
  for (int64_t n = std::min<int64_t>(ngram_max, size - 1); n >= ngram_min; --n) {
    for (int64_t end = size - 1; end >= n; --end) {
      if (!std::equal(tokens.end() - n, tokens.end(), tokens.begin() + end - n)) continue;
      Tokens all = tokens;
      for (int64_t i = 0; i < count; ++i) all.push_back(all[end + i]);
      return {all.begin() + size, all.end()};
    }
  }
  return {};
}

TEST(PromptLookup, proposes_what_followed_the_end_before) {
  EXPECT_EQ(proposed({1, 2, 3, 4, 5, 9, 2, 3}, 2), (Tokens{4, 5}));
  EXPECT_EQ(proposed({1, 2, 3, 4, 5, 9, 8, 3}, 2), Tokens{}) << "one token is too short";
  EXPECT_EQ(proposed({1, 2, 3, 4, 5, 9, 8, 3}, 2, 1), (Tokens{4, 5}));
  EXPECT_EQ(proposed({7}, 2, 1), Tokens{});
  EXPECT_EQ(proposed({}, 2, 1), Tokens{});
}

TEST(PromptLookup, the_longest_end_wins_and_then_the_latest_place) {
  EXPECT_EQ(proposed({1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3}, 1), (Tokens{50}));
  EXPECT_EQ(proposed({2, 3, 50, 9, 2, 3, 60, 7, 2, 3}, 1), (Tokens{60}));
}

TEST(PromptLookup, continues_a_repetition_beyond_its_end) {
  EXPECT_EQ(proposed({1, 2, 1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(proposed({4, 4, 4}, 3), (Tokens{4, 4, 4}));
}

TEST(PromptLookup, finds_what_a_search_of_the_whole_sequence_finds) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const int ngram_min = 1 + static_cast<int>(random() % 3);
    const int ngram_max = ngram_min + static_cast<int>(random() % 4);
    const uint32_t num_words = 2 + random() % 6;
    PromptLookup lookup(ngram_min, ngram_max);
    Tokens tokens;
    for (int i = 0; i < 60; ++i) {
      tokens.push_back(static_cast<TokenId>(random() % num_words));
      if (random() % 3 == 0) lookup.extend(tokens);
      if (random() % 3 == 0) continue;  // several tokens at once
      const int64_t count = random() % 6;
      ASSERT_EQ(lookup.propose(tokens, count), searched(tokens, count, ngram_min, ngram_max));
    }
  }
}

// ---- In the scheduler ---------------------------------------------------------------------------

constexpr SchedulerConfig kConfig = {.max_running = 4,
                                     .max_batched_tokens = 16,
                                     .draft = {.num_tokens = 3, .ngram_min = 2, .ngram_max = 3}};

auto drawing(Tokens tokens) {
  return [tokens](uint64_t) { return tokens; };
}

TEST(PromptLookup, drafts_come_from_the_prompt_and_the_executor_is_asked_for_none) {
  SchedulerDriver driver(kConfig, 8);
  driver.set_proposals({90, 91, 92});
  driver.enqueue(1, {.prompt_tokens = 8, .max_tokens = 20});  // 1000 .. 1007
  driver.step(drawing({1002}));
  EXPECT_EQ(describe(driver.step(drawing({1003})).work), "1: 8+1!") << "1007 1002 is new";
  const StepRecord step = driver.step(drawing({1004, 1005, 50}));
  EXPECT_EQ(step.work[0].tokens, (Tokens{1003, 1004, 1005, 1006}));
  EXPECT_EQ(describe(driver.step().work), "1: 12+1!") << "1005 50 is new";
}

TEST(PromptLookup, a_parked_request_comes_back_without_drafts_and_gets_new_ones) {
  SchedulerDriver driver(kConfig, 8);
  driver.enqueue(1, {.prompt_tokens = 8, .max_tokens = 20});
  driver.step(drawing({1002}));
  driver.step(drawing({1003}));
  driver.scheduler().set_paused(RequestId(1), true);
  EXPECT_TRUE(driver.step().work.empty());
  driver.scheduler().set_paused(RequestId(1), false);
  EXPECT_EQ(describe(driver.step(drawing({1004})).work), "1: 9+1!");
  EXPECT_EQ(driver.step(drawing({50})).work[0].tokens, (Tokens{1004, 1005, 1006, 1007}));
}

TEST(PromptLookup, a_request_with_a_cached_prompt_looks_up_all_of_it) {
  SchedulerConfig config = kConfig;
  config.max_batched_tokens = 256;
  SchedulerDriver driver(config, 16);
  driver.enqueue(1, {.prompt_tokens = 128, .max_tokens = 2, .text = 1});
  driver.finish_all();
  driver.enqueue(2, {.prompt_tokens = 130, .max_tokens = 20, .text = 1});
  EXPECT_EQ(describe(driver.step(drawing({1002})).work), "2: 128+2!");
  driver.step(drawing({1003}));
  EXPECT_EQ(driver.step(drawing({50})).work[0].tokens, (Tokens{1003, 1004, 1005, 1006}));
}

TEST(PromptLookup, drafts_of_a_request_whose_newest_token_is_being_drawn_are_not_used) {
  SchedulerDriver driver(kConfig, 8);
  driver.enqueue(1, {.prompt_tokens = 8, .max_tokens = 20});
  driver.step(drawing({1002}));
  std::vector<RequestUpdate> updates;
  const StepPlan plain = driver.scheduler().plan(absl::UnixEpoch(), updates);
  ASSERT_EQ(plain.ranks[0].work.size(), 1u);
  const StepPlan ahead = driver.scheduler().plan(absl::UnixEpoch(), updates);
  EXPECT_FALSE(ahead.has_work()) << "drafts may follow the token that is being drawn";
  StepResult result;
  result.sequences.resize(1);
  result.sequences[0].tokens.push_back({1003, 0.0f, {}});
  driver.scheduler().commit(plain, result, updates);
  driver.scheduler().commit(ahead, {}, updates);
  EXPECT_EQ(driver.step(drawing({50})).work[0].tokens, (Tokens{1003, 1004, 1005, 1006}));
}

}  // namespace
}  // namespace dhs
