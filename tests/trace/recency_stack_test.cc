#include "trace/recency_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace dhs::trace {
namespace {

TEST(RecencyStack, orders_rows_by_their_latest_touch) {
  RecencyStack stack;
  for (int32_t row : {5, 9, 2, 5}) stack.touch(row);
  EXPECT_EQ(stack.size(), 3);
  EXPECT_EQ(stack.at(0), 5);
  EXPECT_EQ(stack.at(1), 2);
  EXPECT_EQ(stack.at(2), 9);
  EXPECT_EQ(stack.depth_of(9), 2);
  EXPECT_EQ(stack.depth_of(7), std::nullopt);
  EXPECT_EQ(stack.depth_of(1000000), std::nullopt);
}

TEST(RecencyStack, does_what_a_plain_list_does) {
  std::mt19937 random(1);
  RecencyStack stack;
  std::vector<int32_t> list;  // the latest first
  for (int i = 0; i < 30000; ++i) {
    const auto row = static_cast<int32_t>(random() % (i < 15000 ? 300 : 3000));
    const auto found = std::find(list.begin(), list.end(), row);
    ASSERT_EQ(stack.contains(row), found != list.end());
    if (found != list.end()) {
      ASSERT_EQ(stack.depth_of(row), found - list.begin());
      list.erase(found);
      if (random() % 4 == 0) {
        stack.erase(row);
        continue;
      }
    }
    list.insert(list.begin(), row);
    stack.touch(row);
    ASSERT_EQ(stack.size(), std::ssize(list));
    const auto depth = static_cast<int64_t>(random() % list.size());
    ASSERT_EQ(stack.at(depth), list[depth]) << "after " << i << " touches";
  }
}

TEST(RecencyStackDeathTest, a_depth_or_row_that_is_not_there_stops_the_process) {
  RecencyStack stack;
  stack.touch(1);
  EXPECT_DEATH(stack.at(1), "depth 1 of 1 rows");
  EXPECT_DEATH(stack.erase(2), "row 2 is not in the stack");
}

}  // namespace
}  // namespace dhs::trace
