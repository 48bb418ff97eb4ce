#include "kernels/gather/gather.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "dhisparse/device.h"

namespace dhs {
namespace {

constexpr int64_t kNumBlocks = 5;
constexpr int64_t kNumSlots = 48;
constexpr int32_t kSlotsPerChunk = 7;  // records do not fill a chunk evenly

// A host arena with other groups' bytes around ours, and slots in chunks that lie out of order.
struct Tiers {
  explicit Tiers(int64_t record_bytes) {
    host.block_bytes = 64 * record_bytes + 160;
    host.group_offset = 96;
    host.record_bytes = record_bytes;
    arena.resize(static_cast<size_t>(kNumBlocks * host.block_bytes));
    std::mt19937 random(static_cast<unsigned>(record_bytes));
    for (std::byte& b : arena) b = static_cast<std::byte>(random());
    host.base = arena.data();

    const int64_t num_chunks = (kNumSlots + kSlotsPerChunk - 1) / kSlotsPerChunk;
    const int64_t chunk_bytes = kSlotsPerChunk * record_bytes + 48;
    pool.assign(static_cast<size_t>(num_chunks * chunk_bytes), std::byte{0xee});
    for (int64_t c = 0; c < num_chunks; ++c) {
      offsets.push_back((num_chunks - 1 - c) * chunk_bytes);
    }
    slots = {pool.data(), offsets.data(), kSlotsPerChunk, record_bytes};
  }

  void fetch(int num_orders, void (*gather)(const GatherParams&)) {
    std::mt19937_64 random(9);
    std::vector<int32_t> free(kNumSlots);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    std::vector<FetchOrder> orders;
    for (int i = 0; i < num_orders; ++i) {
      orders.push_back({static_cast<int64_t>(random() % (kNumBlocks * 64)), free[size_t(i)]});
    }
    const int32_t count = num_orders;
    gather({host, slots, view<const FetchOrder>(orders.data(), num_orders), &count});
  }

  HostRecords host;
  ChunkedItems slots;
  std::vector<std::byte> arena, pool;
  std::vector<int64_t> offsets;
};

void launch(const GatherParams& params) { launch_gather(params, Stream{}); }

TEST(Gather, copies_exactly_the_ordered_records) {
  for (int64_t record_bytes : {16, 656, 1152, 2624, 4608}) {
    for (int num_orders : {0, 1, 3, 48}) {
      for (int threads : {1, 2}) {
        set_num_kernel_threads(threads);
        Tiers expected(record_bytes), actual(record_bytes);
        expected.fetch(num_orders, gather_ref);
        actual.fetch(num_orders, launch);
        EXPECT_EQ(actual.pool, expected.pool) << record_bytes << " B, " << num_orders;
        EXPECT_EQ(actual.arena, expected.arena) << "the host copy must not change";
      }
    }
  }
}

TEST(Gather, ignores_orders_beyond_the_count) {
  Tiers tiers(64);
  const std::vector<std::byte> before = tiers.pool;
  const std::vector<FetchOrder> orders(4, FetchOrder{1, 2});
  const int32_t count = 0;
  launch_gather({tiers.host, tiers.slots, view<const FetchOrder>(orders.data(), 4), &count},
                Stream{});
  EXPECT_EQ(tiers.pool, before);
}

TEST(Gather, addresses_host_rows_beyond_two_gigabytes) {
  const HostRecords host{nullptr, int64_t{64} * 4608 + 128, 32, 4608, 64};
  EXPECT_EQ(host.at(int64_t{64} * 100000 + 5) - static_cast<std::byte*>(nullptr),
            int64_t{100000} * (64 * 4608 + 128) + 32 + 5 * 4608);
}

}  // namespace
}  // namespace dhs
