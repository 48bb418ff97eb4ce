#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "dhisparse/sync.h"

namespace dhs {
namespace {

bool try_push(BoundedQueue<int>& queue, int value) { return queue.try_push(value); }

TEST(BoundedQueue, gives_items_back_in_the_order_they_came) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(try_push(queue, i));
  EXPECT_EQ(queue.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.try_pop(), i);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueue, try_push_leaves_the_value_untouched_when_full_or_closed) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  auto first = std::make_unique<int>(1);
  auto second = std::make_unique<int>(2);
  ASSERT_TRUE(queue.try_push(first));
  EXPECT_EQ(first, nullptr);
  EXPECT_FALSE(queue.try_push(second));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(**queue.try_pop(), 1);
  queue.close();
  EXPECT_FALSE(queue.try_push(second));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*second, 2);
}

TEST(BoundedQueue, a_popped_item_makes_room_for_exactly_one_more) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(try_push(queue, 1));
  EXPECT_TRUE(try_push(queue, 2));
  EXPECT_FALSE(try_push(queue, 3));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_TRUE(try_push(queue, 3));
  EXPECT_FALSE(try_push(queue, 4));
}

TEST(BoundedQueue, what_is_queued_can_still_be_popped_after_close) {
  BoundedQueue<int> queue(2);
  ASSERT_TRUE(queue.push(1));
  ASSERT_TRUE(queue.push(2));
  queue.close();
  EXPECT_FALSE(queue.push(3));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.try_pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueue, push_waits_for_room_and_never_exceeds_the_capacity) {
  constexpr int kNumItems = 5000;
  BoundedQueue<int> queue(2);
  std::atomic<int> num_refused = 0;
  std::thread producer([&] {
    for (int i = 0; i < kNumItems; ++i) num_refused += queue.push(i) ? 0 : 1;
  });
  size_t most = 0;
  for (int i = 0; i < kNumItems; ++i) {
    most = std::max(most, queue.size());
    ASSERT_EQ(queue.pop(), i);
  }
  producer.join();
  EXPECT_EQ(num_refused, 0);
  EXPECT_LE(most, 2u);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(BoundedQueue, close_wakes_every_waiting_producer) {
  for (int round = 0; round < 50; ++round) {
    BoundedQueue<int> queue(1);
    ASSERT_TRUE(queue.push(7));
    std::atomic<int> num_accepted = 0;
    std::vector<std::thread> producers;
    for (int i = 0; i < 3; ++i) {
      producers.emplace_back([&] { num_accepted += queue.push(8) ? 1 : 0; });
    }
    queue.close();
    for (std::thread& producer : producers) producer.join();
    EXPECT_EQ(num_accepted, 0);
    EXPECT_EQ(queue.pop(), 7);
    EXPECT_EQ(queue.pop(), std::nullopt);
  }
}

TEST(BoundedQueue, close_wakes_every_waiting_consumer) {
  for (int round = 0; round < 50; ++round) {
    BoundedQueue<int> queue(1);
    std::atomic<int> num_empty = 0;
    std::vector<std::thread> consumers;
    for (int i = 0; i < 3; ++i) {
      consumers.emplace_back([&] { num_empty += queue.pop().has_value() ? 0 : 1; });
    }
    queue.close();
    for (std::thread& consumer : consumers) consumer.join();
    EXPECT_EQ(num_empty, 3);
  }
}

TEST(BoundedQueue, every_item_of_several_producers_reaches_one_of_several_consumers) {
  constexpr int kNumProducers = 3;
  constexpr int kNumConsumers = 3;
  constexpr int kItemsEach = 2000;
  BoundedQueue<int> queue(4);
  std::vector<std::vector<int>> received(kNumConsumers);
  std::vector<std::thread> consumers;
  for (auto& items : received) {
    consumers.emplace_back([&queue, &items] {
      while (const std::optional<int> item = queue.pop()) items.push_back(*item);
    });
  }
  std::vector<std::thread> producers;
  for (int p = 0; p < kNumProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kItemsEach; ++i) queue.push(p * kItemsEach + i);
    });
  }
  for (std::thread& producer : producers) producer.join();
  queue.close();
  for (std::thread& consumer : consumers) consumer.join();

  std::vector<int> times_seen(kNumProducers * kItemsEach);
  for (const auto& items : received) {
    std::vector<int> latest(kNumProducers, -1);
    for (int item : items) {
      ++times_seen[item];
      int& previous = latest[item / kItemsEach];
      EXPECT_LT(previous, item) << "one producer's items changed their order";
      previous = item;
    }
  }
  EXPECT_EQ(times_seen, std::vector<int>(times_seen.size(), 1));
}

}  // namespace
}  // namespace dhs
