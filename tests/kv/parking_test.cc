// What a request covers on the device: growing with it, given up by parking, taken back later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "dhisparse/kv.h"

namespace dhs {
namespace {

using testing::IsEmpty;

constexpr int64_t kChunkBytes = 4096;

// One group, records of 64 bytes: 64 rows a chunk. Index items of 1,024 bytes: 4 a chunk. A request
// needs two chunks for its 65 protected rows once it has them.
KvManager make_manager(int32_t num_chunks, ResidencyMode mode = ResidencyMode::kAdaptive) {
  const std::vector<int32_t> layers = {4};
  return KvManager(make_geometry(layers, 16, 1024, 64), {256, num_chunks, kChunkBytes}, {mode, 64});
}

SequenceMemory admit(KvManager& kv, int64_t max_tokens, int64_t device_tokens) {
  auto memory = kv.admit({.max_tokens = max_tokens, .device_tokens = device_tokens});
  EXPECT_TRUE(memory.has_value());
  return memory.has_value() ? *std::move(memory) : SequenceMemory();
}

TEST(Parking, a_request_covers_what_it_has_reached_and_more_as_it_grows) {
  KvManager kv = make_manager(40);
  SequenceMemory memory = admit(kv, 1000, 70);
  EXPECT_EQ(memory.device_tokens(), 128);
  EXPECT_EQ(memory.blocks().size(), 16u) << "host blocks for all of it";
  EXPECT_EQ(kv.usage().chunks_index, 1);
  const uint64_t version = memory.version();
  EXPECT_TRUE(kv.cover(memory, 128, 100));
  EXPECT_EQ(memory.version(), version) << "nothing new to upload";
  EXPECT_TRUE(kv.cover(memory, 1000, 128));
  EXPECT_EQ(memory.device_tokens(), 1000);
  EXPECT_NE(memory.version(), version);
  EXPECT_EQ(kv.usage().chunks_index, 4);
  EXPECT_THAT(kv.take_restores(), IsEmpty()) << "new tokens have no keys to bring";
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(Parking, gives_all_device_memory_up_and_brings_written_keys_back) {
  KvManager kv = make_manager(40);
  SequenceMemory memory = admit(kv, 640, 640);
  const std::vector<HostBlockId> blocks(memory.blocks().begin(), memory.blocks().end());
  kv.rebalance();
  kv.park(memory);
  EXPECT_TRUE(memory.is_parked());
  EXPECT_EQ(memory.index(), -1);
  kv.rebalance();
  EXPECT_EQ(kv.usage().chunks_free, 40);
  EXPECT_EQ(kv.usage().host_blocks_used, 10);
  EXPECT_THAT(kv.take_retired_blocks(), IsEmpty()) << "its rows stay what they are";
  ASSERT_TRUE(kv.cover(memory, 300, 290));
  EXPECT_TRUE(std::equal(blocks.begin(), blocks.end(), memory.blocks().begin()));
  const auto restores = kv.take_restores();
  ASSERT_EQ(restores.size(), 5u) << "290 tokens begin five blocks";
  for (size_t i = 0; i < restores.size(); ++i) {
    EXPECT_EQ(restores[i].block, blocks[i]);
    EXPECT_EQ(restores[i].index_item, memory.index_items()[i]);
  }
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(Parking, what_was_to_come_back_for_it_stays_away) {
  KvManager kv = make_manager(40);
  SequenceMemory memory = admit(kv, 640, 640);
  kv.park(memory);
  ASSERT_TRUE(kv.cover(memory, 640, 640));
  kv.park(memory);
  EXPECT_THAT(kv.take_restores(), IsEmpty());
}

TEST(Parking, covering_more_fails_without_a_trace_when_memory_is_short_and_parking_makes_room) {
  KvManager kv = make_manager(8);
  SequenceMemory first = admit(kv, 1280, 256);   // 1 + 2 chunks
  SequenceMemory second = admit(kv, 1280, 256);  // 1 + 1 more: rows lie close together
  kv.rebalance();
  ASSERT_TRUE(kv.cover(first, 4 * 256, 256));
  kv.rebalance();
  const uint64_t version = first.version();
  EXPECT_FALSE(kv.cover(first, 5 * 256, 256));
  EXPECT_EQ(first.version(), version);
  EXPECT_EQ(kv.check_invariants(), "");
  kv.park(second);
  EXPECT_TRUE(kv.cover(first, 5 * 256, 256));
  EXPECT_FALSE(kv.cover(second, 256, 256)) << "its place is taken";
  EXPECT_TRUE(second.is_parked());
  first = SequenceMemory();
  EXPECT_TRUE(kv.cover(second, 1280, 256));
  EXPECT_EQ(kv.check_invariants(), "");
}

TEST(Parking, nobody_comes_to_the_device_into_the_last_room_that_others_will_grow_into) {
  KvManager kv = make_manager(5);
  SequenceMemory first = admit(kv, 640, 250);  // 1 + 2 chunks, one item left in the segment
  // A second would take the last 1 + 1 chunks, and neither could grow.
  EXPECT_FALSE(kv.can_admit({.max_tokens = 640, .device_tokens = 250}));
  EXPECT_TRUE(kv.can_admit({.max_tokens = 192, .device_tokens = 192})) << "it will not grow";
}

TEST(Parking, could_tells_whether_parking_others_is_worth_while) {
  KvManager kv = make_manager(8);
  SequenceMemory low = admit(kv, 1280, 1280);  // 5 + 2 chunks
  const SequenceMemory* others[] = {&low};
  EXPECT_FALSE(kv.can_admit({.max_tokens = 640}));
  EXPECT_TRUE(kv.could_admit({.max_tokens = 640}, others));
  EXPECT_FALSE(kv.could_admit({.max_tokens = 640}, {}));
}

class ParkingTraffic : public testing::TestWithParam<ResidencyMode> {};

TEST_P(ParkingTraffic, invariants_hold_and_a_request_alone_can_always_cover_its_final_length) {
  KvManager kv = make_manager(24, GetParam());
  std::mt19937 random(17);
  std::vector<SequenceMemory> all;
  int64_t num_parked = 0, num_refused = 0;
  for (int step = 0; step < 20000; ++step) {
    const auto choice = random() % 4;
    SequenceMemory* one = all.empty() ? nullptr : &all[random() % all.size()];
    if (choice == 0 || one == nullptr) {
      const int64_t max_tokens = 1 + static_cast<int64_t>(random() % 1024);
      if (!kv.fits(max_tokens).ok()) continue;
      auto memory = kv.admit({.max_tokens = max_tokens,
                              .device_tokens = 1 + static_cast<int64_t>(random() % max_tokens)});
      if (memory.has_value()) all.push_back(*std::move(memory));
    } else if (choice == 1) {
      const int64_t wanted = 1 + static_cast<int64_t>(random() % one->max_tokens());
      num_refused += kv.cover(*one, wanted, one->device_tokens()) ? 0 : 1;
    } else if (choice == 2 && !one->is_parked()) {
      kv.park(*one);
      ++num_parked;
    } else if (random() % 3 == 0) {
      all.erase(all.begin() + (one - all.data()));
    }
    kv.rebalance();
    for (const BlockRestore& restore : kv.take_restores()) ASSERT_GE(restore.index_item, 0);
    kv.take_retired_blocks();
    ASSERT_EQ(kv.check_invariants(), "") << "step " << step;
    if (step % 500 != 0 || all.empty()) continue;
    for (SequenceMemory& memory : all) {
      if (!memory.is_parked()) kv.park(memory);
    }
    SequenceMemory& alone = all[random() % all.size()];
    ASSERT_TRUE(kv.cover(alone, alone.max_tokens(), 0)) << "step " << step;
  }
  EXPECT_GT(num_parked, 100);
  EXPECT_GT(num_refused, 100);
}

INSTANTIATE_TEST_SUITE_P(Modes, ParkingTraffic,
                         testing::Values(ResidencyMode::kAdaptive, ResidencyMode::kFixed,
                                         ResidencyMode::kResident));

}  // namespace
}  // namespace dhs
