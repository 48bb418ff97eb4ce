#include "kernels/gather/gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "dhisparse/device.h"
#include "kernels/gather/gather_config.h"
#include "kernels/test_memory.h"

namespace dhs {
namespace {

using Bytes = std::vector<std::byte>;
using test::DeviceArray;
using test::HostArray;

constexpr int64_t kNumBlocks = 5;

struct Layout {
  int64_t record_bytes = 16;
  int64_t num_slots = 48;
  // Of a host block beside our records, before them and in all: other groups' bytes.
  int64_t before = 96;
  int64_t beside = 160;
  int32_t slots_per_chunk = 7;

  int64_t num_chunks() const { return (num_slots + slots_per_chunk - 1) / slots_per_chunk; }
  int64_t chunk_bytes() const { return slots_per_chunk * record_bytes + 48; }
};

Bytes random_bytes(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// A host arena, and slots in chunks that lie out of order. One instance is what a launch works on,
// a copy of its bytes what the reference works on.
class Tiers {
 public:
  explicit Tiers(const Layout& layout)
      : layout_(layout),
        arena_(random_bytes(kNumBlocks * block_bytes(), 1)),
        pool_(random_bytes(layout.num_chunks() * layout.chunk_bytes(), 2)) {
    for (int64_t c = layout.num_chunks() - 1; c >= 0; --c) {
      offsets_.push_back(c * layout.chunk_bytes());
    }
  }

  const Bytes& arena() const { return arena_; }
  const Bytes& pool() const { return pool_; }

  // Distinct slots, any host rows; entries beyond num_orders name memory that does not exist.
  std::vector<FetchOrder> make_orders(int64_t num_orders) const {
    std::mt19937_64 random(9);
    std::vector<int32_t> free(static_cast<size_t>(layout_.num_slots));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    std::vector<FetchOrder> orders(free.size(), {int64_t{1} << 40, 1 << 28});
    for (size_t i = 0; i < static_cast<size_t>(num_orders); ++i) {
      orders[i] = {static_cast<int64_t>(random() % (kNumBlocks * 64)), free[i]};
    }
    return orders;
  }

  void fetch(const std::vector<FetchOrder>& orders, int32_t num_orders, int64_t first_byte) {
    const HostArray arena(arena_);
    const DeviceArray<std::byte> pool(pool_);
    const DeviceArray<int64_t> offsets(offsets_);
    const DeviceArray<FetchOrder> device_orders(orders);
    const DeviceArray<int32_t> count(1, num_orders);
    launch_gather(
        {records(arena.data()), slots(pool.data(), offsets.data()),
         view<const FetchOrder>(device_orders.data(), orders.size()), count.data(), first_byte},
        test::stream());
    pool_ = pool.download();
    arena_ = arena.bytes();
  }

  void fetch_by_reference(const std::vector<FetchOrder>& orders, int32_t num_orders,
                          int64_t first_byte) {
    gather_ref({records(arena_.data()), slots(pool_.data(), offsets_.data()),
                view<const FetchOrder>(orders.data(), orders.size()), &num_orders, first_byte});
  }

  void move(const std::vector<MoveOrder>& orders, int32_t num_orders) {
    const DeviceArray<std::byte> pool(pool_);
    const DeviceArray<int64_t> offsets(offsets_);
    const DeviceArray<MoveOrder> device_orders(orders);
    const DeviceArray<int32_t> count(1, num_orders);
    launch_move_records({slots(pool.data(), offsets.data()),
                         view<const MoveOrder>(device_orders.data(), orders.size()), count.data()},
                        test::stream());
    pool_ = pool.download();
  }

  void move_on_host(const MoveOrder& order) {
    const ChunkedItems items = slots(pool_.data(), offsets_.data());
    std::copy_n(items.at(order.from_slot), layout_.record_bytes, items.at(order.to_slot));
  }

 private:
  int64_t block_bytes() const { return 64 * layout_.record_bytes + layout_.beside; }
  HostRecords records(std::byte* base) const {
    return {base, block_bytes(), layout_.before, layout_.record_bytes, 64};
  }
  ChunkedItems slots(std::byte* pool, const int64_t* offsets) const {
    return {pool, offsets, layout_.slots_per_chunk, layout_.record_bytes};
  }

  Layout layout_;
  Bytes arena_, pool_;
  std::vector<int64_t> offsets_;
};

// Runs a gather and the reference from equal bytes; the pools must be equal after.
void expect_like_reference(const Layout& layout, int32_t num_orders, int64_t first_byte) {
  Tiers expected(layout), actual(layout);
  const Bytes arena = actual.arena();
  const std::vector<FetchOrder> orders = actual.make_orders(num_orders);
  expected.fetch_by_reference(orders, num_orders, first_byte);
  actual.fetch(orders, num_orders, first_byte);
  EXPECT_TRUE(actual.pool() == expected.pool())
      << layout.record_bytes << " B from " << first_byte << ", " << num_orders << " orders";
  EXPECT_TRUE(actual.arena() == arena) << "the host copy must not change";
}

TEST(Gather, copies_exactly_the_ordered_records) {
  for (int threads : {1, 2}) {
    set_num_kernel_threads(threads);
    for (int64_t record_bytes : {16, 656, 1152, 2624, 4608}) {
      for (int32_t num_orders : {0, 1, 3, 48}) {
        expect_like_reference({.record_bytes = record_bytes}, num_orders, 0);
      }
    }
    if (test::kOnCuda) break;
  }
}

TEST(Gather, leaves_what_was_fetched_before_alone) {
  for (int64_t first_byte : {16, 656, 1312, 2608, 2624}) {
    expect_like_reference({.record_bytes = 2624}, 20, first_byte);
  }
}

TEST(Gather, works_wherever_records_start_in_a_line) {
  for (int64_t before = 0; before < 128; before += 16) {
    expect_like_reference({.record_bytes = 1152, .before = before, .beside = 128}, 9, 0);
    expect_like_reference({.record_bytes = 128, .before = before, .beside = 128}, 9, 0);
    expect_like_reference({.record_bytes = 144, .before = before, .beside = 112}, 9, 16);
  }
}

TEST(Gather, finds_slots_in_chunks_of_any_size) {
  for (int32_t slots_per_chunk : {1, 2, 3, 48, 100}) {
    expect_like_reference({.record_bytes = 144, .slots_per_chunk = slots_per_chunk}, 48, 0);
  }
}

TEST(Gather, takes_turns_when_orders_exceed_the_grid) {
  expect_like_reference({.record_bytes = 2624, .num_slots = 230}, 230, 0);
}

TEST(Gather, has_the_same_result_every_time) {
  const Layout layout{.record_bytes = 656};
  Tiers once(layout), again(layout);
  const std::vector<FetchOrder> orders = once.make_orders(48);
  once.fetch(orders, 48, 0);
  again.fetch(orders, 48, 0);
  again.fetch(orders, 48, 0);
  EXPECT_TRUE(once.pool() == again.pool());
}

TEST(Gather, takes_no_orders_as_nothing_to_do) {
  Tiers tiers({.record_bytes = 64, .num_slots = 0});
  tiers.fetch({}, 0, 0);
}

TEST(Gather, addresses_host_rows_beyond_two_gigabytes) {
  const HostRecords host{nullptr, int64_t{64} * 4608 + 128, 32, 4608, 64};
  EXPECT_EQ(host.at(int64_t{64} * 100000 + 5) - static_cast<std::byte*>(nullptr),
            int64_t{100000} * (64 * 4608 + 128) + 32 + 5 * 4608);
}

TEST(MoveRecords, copies_whole_records_between_slots_and_no_others) {
  for (int64_t record_bytes : {16, 656, 4608}) {
    const Layout layout{.record_bytes = record_bytes};
    // No target is a source; what lies beyond the count is no order.
    const std::vector<MoveOrder> orders = {{40, 3}, {41, 17}, {47, 0}, {1 << 28, 1 << 28}};
    Tiers actual(layout), expected(layout);
    actual.move(orders, 3);
    for (size_t i = 0; i < 3; ++i) expected.move_on_host(orders[i]);
    EXPECT_TRUE(actual.pool() == expected.pool()) << record_bytes;
    actual.move(orders, 0);
    EXPECT_TRUE(actual.pool() == expected.pool()) << record_bytes << ", no orders";
  }
}

TEST(CopyConfig, knows_how_far_into_a_line_a_source_can_start) {
  EXPECT_EQ(max_line_phase(0, 128 * 9, 1152), 0);
  EXPECT_EQ(max_line_phase(256, 128 * 9, 1152), 0);
  EXPECT_EQ(max_line_phase(96, 128 * 9, 1152), 96);
  EXPECT_EQ(max_line_phase(0, 64 * 656, 656), 112);  // 656 = 5 * 128 + 16
  EXPECT_EQ(max_line_phase(0, 128 * 9, 64), 64);
  EXPECT_EQ(max_line_phase(32, 128 * 9, 64), 96);
}

TEST(CopyConfig, counts_the_lines_that_a_record_can_touch) {
  const auto lines = [](int64_t bytes, int64_t phase) {
    return pick_copy_config({1, bytes, phase, 132}).lines_per_order;
  };
  EXPECT_EQ(lines(656, 112), 6);  // any phase
  EXPECT_EQ(lines(656, 0), 6);
  EXPECT_EQ(lines(1152, 0), 9);
  EXPECT_EQ(lines(1152, 16), 10);
  EXPECT_EQ(lines(16, 112), 1);
}

TEST(CopyConfig, gives_few_orders_enough_blocks_and_many_no_more_than_the_device_has) {
  EXPECT_EQ(pick_copy_config({0, 656, 112, 132}).num_blocks, 0);
  EXPECT_EQ(pick_copy_config({2048, 0, 112, 132}).num_blocks, 0);
  EXPECT_EQ(pick_copy_config({1, 656, 112, 132}).num_blocks, 1);
  // One request's worst case: more in flight than a link of 45 GB/s hides in 1 us.
  const int64_t in_flight = kCopyLinesPerWarp * kCopyLineBytes * (kCopyThreads / 32);
  EXPECT_GE(pick_copy_config({256, 656, 112, 132}).num_blocks * in_flight, 45000);
  EXPECT_EQ(pick_copy_config({2048, 656, 112, 132}).num_blocks, 96);
  EXPECT_EQ(pick_copy_config({1 << 20, 4608, 112, 132}).num_blocks, 264);
}

}  // namespace
}  // namespace dhs
