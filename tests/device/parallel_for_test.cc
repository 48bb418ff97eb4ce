#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/device.h"

namespace dhs {
namespace {

using Pieces = std::vector<std::pair<int64_t, int64_t>>;

class ParallelFor : public testing::Test {
 protected:
  void TearDown() override { set_num_kernel_threads(0); }
};

Pieces pieces_of(int64_t count, int64_t grain) {
  Pieces pieces;
  std::mutex mutex;
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    pieces.emplace_back(begin, end);
  });
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

void expect_each_index_visited_once(int64_t count, int64_t grain) {
  std::vector<std::atomic<int>> visits(count);
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[i];
  });
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(visits[i], 1) << i << " of " << count << " by " << grain;
  }
}

TEST_F(ParallelFor, covers_every_index_once_for_odd_counts_and_grains) {
  for (int threads : {1, 2, 3}) {
    set_num_kernel_threads(threads);
    for (int64_t count : {0, 1, 2, 7, 63, 64, 65, 1001}) {
      for (int64_t grain : {1, 2, 3, 64, 1000, 5000}) {
        expect_each_index_visited_once(count, grain);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(ParallelFor, cuts_the_same_pieces_whatever_the_number_of_threads) {
  for (int64_t count : {0, 1, 100, 777}) {
    for (int64_t grain : {1, 7, 100, 1000}) {
      Pieces expected;
      for (int64_t begin = 0; begin < count; begin += grain) {
        expected.emplace_back(begin, std::min(count, begin + grain));
      }
      for (int threads : {1, 2, 5}) {
        set_num_kernel_threads(threads);
        EXPECT_EQ(pieces_of(count, grain), expected) << threads << " threads";
      }
    }
  }
}

TEST_F(ParallelFor, a_nested_call_runs_on_the_caller_and_covers_everything_too) {
  set_num_kernel_threads(2);
  std::vector<std::atomic<int>> visits(20 * 30);
  std::atomic<int> num_elsewhere = 0;
  parallel_for(20, 1, [&](int64_t outer_begin, int64_t outer_end) {
    const std::thread::id caller = std::this_thread::get_id();
    for (int64_t outer = outer_begin; outer < outer_end; ++outer) {
      parallel_for(30, 4, [&](int64_t begin, int64_t end) {
        if (std::this_thread::get_id() != caller) ++num_elsewhere;
        for (int64_t i = begin; i < end; ++i) ++visits[outer * 30 + i];
      });
    }
  });
  EXPECT_EQ(num_elsewhere, 0);
  for (const auto& visit : visits) ASSERT_EQ(visit, 1);
}

TEST_F(ParallelFor, what_the_pieces_wrote_is_visible_after_it_returns) {
  set_num_kernel_threads(2);
  for (int round = 0; round < 100; ++round) {
    std::vector<int> values(257);
    parallel_for(257, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = round + static_cast<int>(i);
    });
    for (int i = 0; i < 257; ++i) ASSERT_EQ(values[i], round + i);
  }
}

TEST_F(ParallelFor, the_thread_count_is_what_was_set_and_zero_means_every_core) {
  set_num_kernel_threads(3);
  EXPECT_EQ(num_kernel_threads(), 3);
  set_num_kernel_threads(0);
  EXPECT_GE(num_kernel_threads(), 1);
  EXPECT_LE(num_kernel_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(ParallelForDeathTest, a_grain_of_zero_stops_the_process) {
  EXPECT_DEATH(parallel_for(4, 0, [](int64_t, int64_t) {}), "grain 0");
}

}  // namespace
}  // namespace dhs
