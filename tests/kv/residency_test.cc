// How optional residency grows, is shared among index groups, and gives way.
#include <gtest/gtest.h>

#include "dhisparse/kv.h"

namespace dhs {
namespace {

constexpr int64_t kChunkBytes = 64 << 10;

// Two groups of records of 256 bytes: a chunk holds 256 rows, or 16 index items.
KvGeometry geometry() {
  const std::vector<int32_t> layers = {1, 1};
  return make_geometry(layers, 256, 2048, 256);
}

struct World {
  KvManager kv;
  absl::Time now = absl::UnixEpoch();

  explicit World(int32_t num_chunks, ResidencyConfig config = {}, int64_t link_bytes_per_s = 0)
      : kv(geometry(), {4096, num_chunks, kChunkBytes, link_bytes_per_s}, config) {}

  // A decode step of 10 ms in which each group missed so many rows. What it released and grew.
  struct Moves {
    int64_t released = 0;
    int64_t grown = 0;
  };
  Moves step(std::vector<int64_t> missed) {
    now += absl::Milliseconds(10);
    Moves moves;
    for (const ChunkMove& move : kv.rebalance(now)) {
      moves.released += move.kind == ChunkMove::Kind::kReleaseRows ? 1 : 0;
      moves.grown += move.kind == ChunkMove::Kind::kGrowRows ? 1 : 0;
    }
    std::vector<GroupTraffic> traffic;
    for (size_t g = 0; g < missed.size(); ++g) {
      traffic.push_back({missed[g], kv.usage().chunks_rows[g] * 256});
    }
    kv.observe(traffic, absl::Milliseconds(10));
    EXPECT_EQ(kv.check_invariants(), "");
    return moves;
  }
};

TEST(Residency, a_step_grows_what_its_share_of_the_link_can_fill) {
  // 0.3 of what passes in 10 ms: 3 chunks.
  World world(150, {.headroom_steps = 0}, 100 * 10 * kChunkBytes);
  const auto memory = world.kv.admit(16384);
  world.step({256, 256});  // nothing is known of the link's load yet: all that is free
  EXPECT_EQ(world.kv.usage().chunks_rows[0], 64);
  {
    const auto brief = world.kv.admit(16384);
    EXPECT_GT(world.step({256, 256}).released, 9);
  }
  world.now += absl::Seconds(2);
  EXPECT_EQ(world.step({256, 256}).grown, 3);
  EXPECT_EQ(world.step({256, 256}).grown, 3);
}

TEST(Residency, free_slots_are_refilled_as_the_link_allows_and_by_what_is_free) {
  World world(150, {.headroom_steps = 0, .grow_delay = absl::ZeroDuration()},
              100 * 10 * kChunkBytes);
  const auto memory = world.kv.admit(16384);
  world.step({256, 256});
  // 64 chunks of 256 rows each; 3 chunks of 256 rows are what the step may fetch.
  world.kv.observe(std::vector<GroupTraffic>{{256, 16384 - 100}, {256, 16384 - 300}},
                   absl::Milliseconds(10));
  world.kv.rebalance(world.now);
  EXPECT_EQ(world.kv.refill_rows(), (std::vector<int64_t>{100, 300}));
  world.kv.observe(std::vector<GroupTraffic>{{256, 16384 - 1000}, {256, 16384 - 3000}},
                   absl::Milliseconds(10));
  EXPECT_EQ(world.kv.refill_rows(), (std::vector<int64_t>{192, 576}));
}

TEST(Residency, nothing_is_refilled_where_the_link_is_not_known) {
  World world(150);
  const auto memory = world.kv.admit(16384);
  world.step({256, 256});
  world.step({256, 256});
  EXPECT_TRUE(world.kv.refill_rows().empty());
}

TEST(Residency, beyond_two_selections_a_request_waits_after_a_release_that_was_required) {
  World world(80, {.headroom_steps = 0, .grow_delay = absl::Milliseconds(55)});
  const auto memory = world.kv.admit(16384);
  world.step({256, 256});
  ASSERT_EQ(world.kv.usage().chunks_free, 0);
  { const auto brief = world.kv.admit(8192); }
  EXPECT_EQ(world.step({256, 256}).grown, 0);
  ASSERT_GT(world.kv.usage().chunks_free, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(world.step({256, 256}).grown, 0);
  EXPECT_GT(world.step({256, 256}).grown, 0);
}

TEST(Residency, up_to_two_selections_a_request_grows_at_once) {
  World world(80, {.headroom_steps = 0});
  std::vector<SequenceMemory> running;
  for (int i = 0; i < 4; ++i) running.push_back(*world.kv.admit(2048));
  world.step({256, 256});
  {
    const auto large = world.kv.admit(61000);  // leaves what is required and no more
    world.step({256, 256});
    ASSERT_EQ(world.kv.usage().chunks_rows, (std::vector<int64_t>{6, 6}));
  }
  // Two selections of 256 rows for each of four requests; the rest of what is free waits.
  EXPECT_EQ(world.step({256, 256}).grown, 4);
  EXPECT_EQ(world.kv.usage().chunks_rows, (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(world.step({256, 256}).grown, 0);
}

TEST(Residency, does_not_grow_while_fetching_takes_less_than_it_is_worth) {
  const int64_t link = int64_t{256} * 256 * 10000;  // 256 rows of 256 bytes take 0.1 ms: 1 %
  World world(200, {.headroom_steps = 0, .grow_delay = absl::ZeroDuration()}, link);
  const auto memory = world.kv.admit(4096);
  world.step({100, 100});
  const auto longer = world.kv.admit(16384);
  for (int i = 0; i < 50; ++i) world.step({60, 60});
  const int64_t before = world.kv.usage().chunks_free;
  ASSERT_GT(before, 0);
  EXPECT_EQ(world.step({60, 60}).grown, 0);
  for (int i = 0; i < 50; ++i) world.step({200, 200});
  EXPECT_LT(world.kv.usage().chunks_free, before);
}

TEST(Residency, keeps_what_admissions_require_in_a_few_steps_free) {
  World world(400, {.headroom_steps = 2, .grow_delay = absl::ZeroDuration()});
  std::vector<SequenceMemory> running;
  for (int i = 0; i < 40; ++i) {  // 2 chunks of index items and 2 of rows in each step
    running.push_back(*world.kv.admit(2048));
    if (running.size() > 8) running.erase(running.begin());
    world.step({256, 256});
  }
  const auto filler = world.kv.admit(65536 - 16384);
  int64_t num_released_for_admissions = 0;
  for (int i = 0; i < 40; ++i) {
    running.push_back(*world.kv.admit(2048));
    world.step({256, 256});
    num_released_for_admissions += world.kv.usage().chunks_free == 0 ? 1 : 0;
    if (running.size() > 8) running.erase(running.begin());
  }
  EXPECT_EQ(num_released_for_admissions, 0);
  // With nothing admitted any more, the headroom becomes residency.
  for (int i = 0; i < 200; ++i) world.step({256, 256});
  EXPECT_EQ(world.kv.usage().chunks_free, 0);
}

TEST(Residency, groups_share_in_proportion_to_what_they_miss_and_no_chunk_swings) {
  World world(100, {.headroom_steps = 0, .grow_delay = absl::ZeroDuration()});
  const auto memory = world.kv.admit(16384);
  world.step({100, 100});
  const int64_t equal = world.kv.usage().chunks_rows[0];
  ASSERT_EQ(world.kv.usage().chunks_rows[1], equal);
  // misses = m / rows with a fourfold m: rows settle at twice as many, up to the power and what is
  // worth moving.
  const auto misses = [&](int group) {
    return (group == 0 ? 40000 : 10000) / world.kv.usage().chunks_rows[group];
  };
  for (int i = 0; i < 1500; ++i) world.step({misses(0), misses(1)});
  const std::vector<int64_t> chunks = world.kv.usage().chunks_rows;
  EXPECT_NEAR(static_cast<double>(chunks[0]) / static_cast<double>(chunks[1]), 2, 0.25);
  int64_t num_moves = 0;
  for (int i = 0; i < 500; ++i) num_moves += world.step({misses(0), misses(1)}).grown;
  EXPECT_EQ(num_moves, 0);
}

}  // namespace
}  // namespace dhs
