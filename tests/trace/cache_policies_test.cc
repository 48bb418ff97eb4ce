#include "trace/cache_policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace dhs::trace {
namespace {

using Misses = std::vector<int64_t>;

std::vector<Pass> passes_of(const std::vector<std::vector<int32_t>>& rows) {
  std::vector<Pass> passes;
  for (const auto& pass : rows) passes.push_back({pass});
  return passes;
}

TEST(CachePolicies, lru_keeps_what_was_used_last) {
  // 1 is used again and stays, 2 is not and goes.
  const auto passes = passes_of({{1}, {2}, {1}, {3}, {1}, {2}});
  EXPECT_EQ(lru_misses(passes, std::vector<int64_t>{2, 3}),
            (std::vector<Misses>{{1, 1, 0, 1, 0, 1}, {1, 1, 0, 1, 0, 0}}));
}

TEST(CachePolicies, fifo_does_not_care_for_use) {
  EXPECT_EQ(fifo_misses(passes_of({{1}, {2}, {1}, {3}, {1}, {2}}), 2), (Misses{1, 1, 0, 1, 1, 1}));
}

TEST(CachePolicies, fifo_passes_over_what_the_pass_needs_and_takes_it_next) {
  // The third pass needs 1, the oldest: 2 goes instead. Then 1 is first in the queue again.
  EXPECT_EQ(fifo_misses(passes_of({{1}, {2}, {1, 3}, {4}, {3}, {1}}), 2),
            (Misses{1, 1, 1, 1, 0, 1}));
}

TEST(CachePolicies, belady_keeps_what_is_used_next) {
  EXPECT_EQ(belady_misses(passes_of({{1}, {2}, {3}, {1}, {3}, {2}}), 2),
            (Misses{1, 1, 1, 0, 0, 1}));
}

TEST(CachePolicies, a_written_row_comes_in_without_having_missed) {
  std::vector<Pass> passes = {{{1, 2}, 1}, {{2}, 0}, {{3, 4}, 1}, {{4, 2}, 0}};
  const Misses expected = {1, 0, 1, 1};
  EXPECT_EQ(lru_misses(passes, std::vector<int64_t>{2})[0], expected);
  EXPECT_EQ(fifo_misses(passes, 2), expected);
  EXPECT_EQ(random_misses(passes, 2, 1), expected);
  EXPECT_EQ(belady_misses(passes, 2), expected);
}

// The fewest misses of any policy, by trying every set of victims.
int64_t fewest_misses(const std::vector<Pass>& passes, size_t capacity) {
  std::function<int64_t(size_t, std::vector<int32_t>)> best = [&](size_t number,
                                                                  std::vector<int32_t> cached) {
    if (number == passes.size()) return int64_t{0};
    int64_t missed = 0;
    for (int32_t row : passes[number].rows) {
      if (std::find(cached.begin(), cached.end(), row) != cached.end()) continue;
      cached.push_back(row);
      ++missed;
    }
    int64_t fewest = INT64_MAX;
    for (uint32_t kept = 0; kept < (1u << cached.size()); ++kept) {
      std::vector<int32_t> left;
      bool is_legal = true;
      for (size_t i = 0; i < cached.size(); ++i) {
        const auto& rows = passes[number].rows;
        const bool is_needed = std::find(rows.begin(), rows.end(), cached[i]) != rows.end();
        const bool is_kept = (kept >> i & 1) != 0;
        is_legal = is_legal && (is_kept || !is_needed);
        if (is_kept) left.push_back(cached[i]);
      }
      if (!is_legal || left.size() > capacity) continue;
      if (left.size() < std::min(capacity, cached.size())) continue;
      fewest = std::min(fewest, best(number + 1, left));
    }
    return missed + fewest;
  };
  return best(0, {});
}

int64_t sum(const Misses& misses) {
  int64_t sum = 0;
  for (int64_t missed : misses) sum += missed;
  return sum;
}

TEST(CachePolicies, no_policy_misses_less_than_belady) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<Pass> passes(6);
    for (Pass& pass : passes) {
      std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5};
      std::shuffle(rows.begin(), rows.end(), random);
      pass.rows.assign(rows.begin(), rows.begin() + 1 + random() % 2);
    }
    const int64_t fewest = fewest_misses(passes, 3);
    EXPECT_EQ(sum(belady_misses(passes, 3)), fewest);
    EXPECT_GE(sum(lru_misses(passes, std::vector<int64_t>{3})[0]), fewest);
    EXPECT_GE(sum(fifo_misses(passes, 3)), fewest);
    EXPECT_GE(sum(random_misses(passes, 3, 1)), fewest);
  }
}

}  // namespace
}  // namespace dhs::trace
