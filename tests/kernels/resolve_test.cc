#include "kernels/resolve/resolve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <numeric>
#include <random>
#include <set>
#include <unordered_map>

#include "kernels/resolve/pass_config.h"
#include "kernels/row_cache_fixture.h"
#include "kernels/row_cache_traffic.h"

namespace dhs {
namespace {

using test::expect_equal_states;
using test::Released;
using test::Resolved;
using test::difference;
using test::RowCacheImage;
using test::Selection;
using test::TestedRowCache;
using test::Twins;

// Sequences on consecutive host blocks: sequence s owns blocks [s * blocks_each, ...).
std::vector<std::vector<int32_t>> blocks_in_turn(int num_sequences, int blocks_each) {
  std::vector<std::vector<int32_t>> table(num_sequences);
  for (int i = 0; i < num_sequences * blocks_each; ++i) table[i / blocks_each].push_back(i);
  return table;
}

// ---- Contracts ----------------------------------------------------------------------------------

TEST(Resolve, pads_with_absent_and_fetches_a_shared_row_once) {
  TestedRowCache cache({256, 8, 1});
  cache.grow();
  const auto table = blocks_in_turn(2, 2);
  const Resolved first = cache.resolve({{{3, 5, -1}, {5, 7, -1}}, {0, 0}, table});
  EXPECT_EQ(first.missed_rows, (std::vector<int64_t>{3, 5, 7}));
  EXPECT_EQ(first.slots[2], kAbsent);
  EXPECT_EQ(first.slots[1], first.slots[3]);
  EXPECT_EQ(first.counters, (std::vector<int64_t>{4, 0, 3, 0}));
  const Resolved second = cache.resolve({{{3, 5, 7}}, {0}, table});
  EXPECT_TRUE(second.missed_rows.empty());
  EXPECT_EQ(second.counters, (std::vector<int64_t>{3, 3, 0, 0}));
  EXPECT_EQ(cache.image().check(), nullptr);
}

TEST(Resolve, sequences_do_not_see_each_others_rows) {
  TestedRowCache cache({256, 8, 1});
  cache.grow();
  const Resolved out = cache.resolve({{{3}, {3}}, {0, 1}, blocks_in_turn(2, 2)});
  EXPECT_EQ(out.missed_rows, (std::vector<int64_t>{3, 128 + 3}));
  EXPECT_NE(out.slots[0], out.slots[1]);
}

TEST(Resolve, tells_every_entry_its_order_and_who_named_the_row_first) {
  TestedRowCache cache({256, 8, 1});
  cache.grow();
  const auto table = blocks_in_turn(2, 2);
  cache.resolve({{{9}}, {0}, table});
  const Resolved out = cache.resolve({{{9, 4, 5, -1}, {5, 9, 6, 4}}, {0, 0}, table});
  EXPECT_EQ(out.missed_rows, (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(out.miss_of, (std::vector<int32_t>{-1, 1, 3, -1, 2, -1, 5, 0}));
}

TEST(Resolve, counts_a_miss_for_the_sequence_that_names_the_row_first) {
  TestedRowCache cache({256, 8, 1});
  cache.grow();
  // Both sequences begin with host block 0.
  const Selection selection = {{{70, 1, -1}, {1, 2, 70}}, {1, 0}, {{0, 1}, {0, 2}}};
  const Resolved out = cache.resolve(selection);
  EXPECT_EQ(out.missed_rows, (std::vector<int64_t>{128 + 6, 1, 2, 64 + 6}));
  EXPECT_EQ(out.selected_of_sequence, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(out.missed_of_sequence, (std::vector<int64_t>{2, 2}));
}

TEST(Resolve, takes_padding_rows_and_no_rows_at_all_as_a_pass_of_nothing) {
  TestedRowCache cache({256, 8, 1});
  cache.grow();
  const auto table = blocks_in_turn(1, 4);
  const Resolved padding = cache.resolve({{{-1, -1}, {-1, -1}}, {0, 0}, table});
  EXPECT_EQ(padding.slots, std::vector<int32_t>(4, kAbsent));
  EXPECT_EQ(padding.miss_of, std::vector<int32_t>(4, -1));
  EXPECT_EQ(padding.counters, std::vector<int64_t>(4, 0));
  const Resolved nothing = cache.resolve({{}, {}, table});
  EXPECT_TRUE(nothing.missed_rows.empty());
  cache.claim({});
  EXPECT_EQ(cache.head().tick, 3u);
  EXPECT_EQ(cache.head().num_free, 8);
}

TEST(RowCache, never_evicts_a_row_stamped_in_this_pass) {
  TestedRowCache cache({1024, 16, 1});
  cache.grow();
  const auto table = blocks_in_turn(1, 16);
  std::mt19937 random(1);
  for (int step = 0; step < (test::kOnCuda ? 50 : 500); ++step) {
    std::set<int32_t> wanted;
    while (wanted.size() < 16) wanted.insert(static_cast<int32_t>(random() % 1024));
    const std::vector<int32_t> row(wanted.begin(), wanted.end());
    const Resolved out = cache.resolve({{row}, {0}, table});
    RowCacheImage image = cache.image();
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_GE(out.slots[i], 0);
      ASSERT_EQ(image.owner_of[out.slots[i]], row[i]) << "step " << step;
    }
    ASSERT_EQ(image.check(), nullptr);
  }
}

TEST(RowCacheDeathTest, a_selection_larger_than_the_cache_stops_the_process) {
  const auto resolve_too_much = [] {
    TestedRowCache cache({1024, 4, 1});
    cache.grow();
    cache.resolve({{{1, 2, 3, 4, 5}}, {0}, blocks_in_turn(1, 16)});
  };
#if DHS_TEST_CUDA && !defined(DHS_SIMT)
  const char* expected = "";  // a trap says nothing
#else
  const char* expected = "selection does not fit";
#endif
  EXPECT_DEATH(resolve_too_much(), expected);
}

TEST(RowCache, invalidate_frees_exactly_the_rows_of_its_blocks) {
  TestedRowCache cache({384, 16, 1});
  cache.grow();
  cache.resolve({{{1, 2, 63, 64, 130, 200}}, {0}, blocks_in_turn(1, 6)});
  cache.invalidate({3, 0});
  RowCacheImage image = cache.image();
  EXPECT_EQ(image.slot_of[1], kAbsent);
  EXPECT_EQ(image.slot_of[63], kAbsent);
  EXPECT_EQ(image.slot_of[200], kAbsent);
  EXPECT_NE(image.slot_of[64], kAbsent);
  EXPECT_NE(image.slot_of[130], kAbsent);
  EXPECT_EQ(image.head.num_free, 14);
  EXPECT_EQ(image.check(), nullptr);
  cache.invalidate({});
  EXPECT_EQ(difference(cache.image(), image), "");
}

TEST(RowCache, claim_takes_slots_without_orders_and_stops_when_all_are_stamped) {
  TestedRowCache cache({256, 4, 1});
  cache.grow();
  EXPECT_EQ(cache.claim({10, -1, 11, 12, 13, 14, 15}), 0);
  RowCacheImage image = cache.image();
  for (int row = 10; row < 14; ++row) EXPECT_NE(image.slot_of[row], kAbsent) << row;
  EXPECT_EQ(image.slot_of[14], kAbsent);
  EXPECT_EQ(image.slot_of[15], kAbsent);
  EXPECT_EQ(image.check(), nullptr);
}

TEST(RowCache, claim_without_a_live_slot_leaves_its_rows_absent) {
  TestedRowCache cache({256, 4, 1});
  EXPECT_EQ(cache.claim({10, 11}), 0);
  RowCacheImage image = cache.image();
  EXPECT_EQ(image.slot_of[10], kAbsent);
  EXPECT_EQ(image.check(), nullptr);
}

// Steps of one new row and 63 wanted ones in 64 slots; how often the new row lost its slot.
int count_lost_claims(bool protect_in_next_pass) {
  TestedRowCache cache({4096, 64, 1});
  cache.grow();
  const auto table = blocks_in_turn(1, 64);
  std::mt19937 random(5);
  int num_lost = 0;
  for (int32_t step = 0; step < (test::kOnCuda ? 40 : 200); ++step) {
    cache.claim({3000 + step}, protect_in_next_pass);
    std::set<int32_t> wanted;
    while (wanted.size() < 63) wanted.insert(static_cast<int32_t>(random() % 3000));
    cache.resolve({{{wanted.begin(), wanted.end()}}, {0}, table});
    RowCacheImage image = cache.image();
    num_lost += image.slot_of[3000 + step] == kAbsent ? 1 : 0;
    EXPECT_EQ(image.check(), nullptr);
  }
  return num_lost;
}

TEST(RowCache, a_protected_claim_survives_the_pass_that_follows) {
  EXPECT_EQ(count_lost_claims(true), 0);
  EXPECT_GT(count_lost_claims(false), 0);
}

TEST(RowCache, release_moves_protected_rows_and_drops_the_others) {
  TestedRowCache cache({1024, 8, 3});
  cache.grow(3);
  const auto table = blocks_in_turn(1, 16);
  std::vector<int32_t> old_rows(20);
  for (int i = 0; i < 20; ++i) old_rows[i] = i;
  cache.resolve({{old_rows}, {0}, table});
  // A new segment's slots are used first: rows 0..7 lie in the last one.
  const std::vector<int32_t> hot = {0, 1, 2, 3, 100, 101};
  cache.begin_step();
  cache.resolve({{hot}, {0}, table});
  const Released released = cache.release();
  RowCacheImage image = cache.image();
  EXPECT_EQ(image.head.num_live, 16);
  for (int32_t row : hot) {
    ASSERT_NE(image.slot_of[row], kAbsent) << "protected row " << row << " was dropped";
    EXPECT_LT(image.slot_of[row], 16);
  }
  EXPECT_EQ(released.from.size(), 4u);
  EXPECT_EQ(released.num_dropped, 6);  // rows 4..7, and two that made room where no slot was free
  for (int32_t from : released.from) EXPECT_GE(from, 16);
  const std::set<int32_t> targets(released.to.begin(), released.to.end());
  EXPECT_EQ(targets.size(), released.to.size()) << "two moves to one slot";
  EXPECT_LT(*targets.rbegin(), 16);
  EXPECT_EQ(image.check(), nullptr);
}

TEST(RowCache, release_keeps_optional_rows_too_while_free_slots_last) {
  TestedRowCache cache({1024, 8, 2});
  cache.grow(2);
  // A new segment's slots are used first.
  cache.resolve({{{64, 65, 66, 67, 68}}, {0}, blocks_in_turn(1, 16)});
  cache.begin_step();
  const Released released = cache.release();
  EXPECT_EQ(released.from.size(), 5u);
  EXPECT_EQ(released.num_dropped, 0);
  RowCacheImage image = cache.image();
  for (int row = 64; row <= 68; ++row) EXPECT_NE(image.slot_of[row], kAbsent) << row;
  EXPECT_EQ(image.check(), nullptr);
}

TEST(RowCache, ticks_that_wrap_around_lose_no_row_of_the_running_pass) {
  TestedRowCache cache({1024, 16, 1});
  cache.grow();
  cache.set_tick(UINT32_MAX - 3);
  for (int32_t step = 0; step < 8; ++step) {
    std::vector<int32_t> row(12);
    for (int32_t i = 0; i < 12; ++i) row[i] = step * 5 + i;
    const Resolved out = cache.resolve({{row}, {0}, blocks_in_turn(1, 16)});
    RowCacheImage image = cache.image();
    for (size_t i = 0; i < row.size(); ++i) ASSERT_EQ(image.owner_of[out.slots[i]], row[i]);
    ASSERT_EQ(image.check(), nullptr);
  }
  EXPECT_LT(cache.head().tick, 8u);
}

// ---- State for state ----------------------------------------------------------------------------

constexpr int kNumSteps = test::kOnCuda ? 60 : 1500;

TEST(RowCacheStates, are_equal_over_random_passes_of_one_block) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    expect_equal_states({.shape = {2048, 48, 6}, .num_steps = kNumSteps}, seed);
  }
}

TEST(RowCacheStates, are_equal_in_caches_of_less_than_one_stride) {
  for (int32_t num_slots : {1, 3, 31, 33, 63, 65}) {
    expect_equal_states({.shape = {1024, num_slots, 2},
                         .num_query_rows = 3,
                         .top_k = 20,
                         .num_steps = kNumSteps / 4},
                        num_slots);
  }
}

TEST(RowCacheStates, are_equal_when_the_selection_just_fits) {
  // Nearly everything is stamped in each pass, so that classes run dry.
  expect_equal_states({.shape = {4096, 200, 2},
                       .num_query_rows = 5,
                       .top_k = 80,
                       .blocks_each = 16,
                       .locality = 60,
                       .num_steps = kNumSteps},
                      4);
}

TEST(RowCacheStates, are_equal_over_passes_of_several_launches) {
  expect_equal_states({.shape = {8192, 1500, 3},
                       .num_query_rows = 5,
                       .top_k = 600,
                       .blocks_each = 60,
                       .num_steps = kNumSteps / 2},
                      5);
}

TEST(RowCacheStates, are_equal_when_threads_have_several_entries) {
  expect_equal_states({.shape = {16384, 7000, 2},
                       .num_query_rows = 20,
                       .top_k = 1000,
                       .blocks_each = 120,
                       .locality = 80,
                       .num_steps = test::kOnCuda ? 8 : 100},
                      6);
}

TEST(RowCacheStates, are_equal_when_ticks_wrap_around) {
  for (uint32_t before : {2, 3, 5}) {
    for (int top_k : {16, 600}) {
      expect_equal_states({.shape = {4096, 2048, 2},
                           .num_query_rows = 5,
                           .top_k = top_k,
                           .blocks_each = 30,
                           .num_steps = 8,
                           .first_tick = UINT32_MAX - before},
                          before);
    }
  }
}

// Protected rows that want to stay, over a cache most of whose other rows are protected too.
TEST(RowCacheStates, are_equal_when_a_release_finds_few_older_rows) {
  for (uint32_t seed : {1, 2, 3, 4, 5, 6}) {
    const test::ScopedSchedule schedule(seed);
    std::mt19937 random(seed);
    Twins twins({4096, 80, 4});
    for (int i = 0; i < 4; ++i) {
      twins.run("add", [](auto& cache) { cache.grow(); });
    }
    Selection all = {{std::vector<int32_t>(320)}, {0}, blocks_in_turn(1, 64)};
    std::iota(all.rows[0].begin(), all.rows[0].end(), 0);
    std::iota(all.rows[0].end() - 10, all.rows[0].end(), 20 * test::kBlockTokens);
    twins.run("resolve", [&](auto& cache) { return cache.resolve(all); });
    twins.run("begin", [](auto& cache) { cache.begin_step(); });
    Selection hot = all;
    for (int32_t& position : hot.rows[0]) position = random() % 8 < seed ? position : -1;
    twins.run("resolve", [&](auto& cache) { return cache.resolve(hot); });
    // Ten free slots, so that some protected rows take those and others want victims.
    twins.run("invalidate", [](auto& cache) { cache.invalidate({20}); });
    for (int i = 0; i < 4; ++i) {
      twins.run("release", [](auto& cache) { return cache.release(); });
    }
  }
}

TEST(RowCacheStates, are_equal_when_all_rows_miss_and_when_all_hit) {
  const test::ScopedSchedule schedule(7);
  Twins twins({8192, 4096, 1});
  twins.run("add", [](auto& cache) { cache.grow(); });
  Selection selection = {{}, {0, 0, 1, 1}, blocks_in_turn(2, 64)};
  for (int row = 0; row < 4; ++row) {
    selection.rows.emplace_back(1024);
    for (int i = 0; i < 1024; ++i) selection.rows[row][i] = (row % 2 * 1024 + i * 3) % 4096;
  }
  for (int shift = 0; shift < 3; ++shift) {
    // Twice each: the second time everything is there.
    for (int time = 0; time < 2; ++time) {
      twins.run("resolve", [&](auto& cache) { return cache.resolve(selection); });
    }
    for (auto& row : selection.rows) {
      for (int32_t& position : row) position = (position + 1) % 4096;
    }
  }
}

// ---- Policy -------------------------------------------------------------------------------------

// The policy is the same in all versions; its quality is measured on the quickest.
#if !DHS_TEST_CUDA
// Exact LRU over the same references, for comparison.
class Lru {
 public:
  explicit Lru(size_t capacity) : capacity_(capacity) {}
  int64_t touch(const std::vector<int32_t>& rows) {
    int64_t missed = 0;
    for (int32_t row : rows) {
      const auto found = where_.find(row);
      if (found != where_.end()) {
        order_.erase(found->second);
      } else {
        ++missed;
      }
      order_.push_front(row);
      where_[row] = order_.begin();
    }
    while (order_.size() > capacity_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    return missed;
  }

 private:
  size_t capacity_;
  std::list<int32_t> order_;
  std::unordered_map<int32_t, std::list<int32_t>::iterator> where_;
};

// Selections with temporal locality: most rows of a step are taken from the last one, the rest from
// a slowly drifting popularity over a long context.
std::vector<int32_t> next_selection(const std::vector<int32_t>& previous, int32_t context, int k,
                                    std::mt19937& random) {
  std::set<int32_t> rows;
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int32_t row : previous) {
    if (uniform(random) < 0.8) rows.insert(row);
  }
  while (static_cast<int>(rows.size()) < k) {
    const double u = uniform(random);
    rows.insert(static_cast<int32_t>(context * u * u * u));
  }
  return {rows.begin(), rows.end()};
}

TEST(RowCache, misses_stay_within_three_percent_of_exact_lru) {
  constexpr int kTopK = 128;
  constexpr int32_t kContext = 8192;
  const auto table = blocks_in_turn(1, kContext / test::kBlockTokens);
  for (int capacity : {256, 512, 1024}) {
    TestedRowCache cache({kContext, capacity / 4, 4});
    cache.grow(4);
    Lru lru(capacity);
    std::mt19937 random(7);
    std::vector<int32_t> selection;
    int64_t lru_missed = 0;
    int64_t missed = 0;
    for (int step = 0; step < 1500; ++step) {
      selection = next_selection(selection, kContext, kTopK, random);
      const Resolved out = cache.resolve({{selection}, {0}, table});
      const int64_t lru_step = lru.touch(selection);
      if (step < 200) continue;  // both caches warm
      missed += static_cast<int64_t>(out.missed_rows.size());
      lru_missed += lru_step;
    }
    EXPECT_LE(missed, lru_missed * 1.03) << "capacity " << capacity;
    EXPECT_GT(lru_missed, 0);
  }
}
#endif

// ---- Launch configurations ----------------------------------------------------------------------

TEST(PassConfig, pieces_cover_every_entry_and_small_passes_are_one_launch) {
  for (int rows : {0, 1, 2, 16, 17, 272, 1088}) {
    for (int columns : {1, 64, 600, 2048}) {
      const row_cache::PassConfig config = row_cache::pick_pass_config(rows, columns, 132);
      EXPECT_EQ(config.num_pieces, rows * config.pieces_per_row);
      EXPECT_GE(config.pieces_per_row * config.piece_columns(), columns);
      EXPECT_LT((config.pieces_per_row - 1) * config.piece_columns(), columns);
      EXPECT_LE(config.items_per_thread, row_cache::kMaxItemsPerThread);
      if (config.is_one_block) {
        EXPECT_LE(rows * columns, row_cache::kMaxOneBlockEntries);
      }
    }
  }
  EXPECT_TRUE(row_cache::pick_pass_config(1, 2048, 132).is_one_block);
  EXPECT_TRUE(row_cache::pick_pass_config(0, 2048, 132).is_one_block);
  EXPECT_FALSE(row_cache::pick_pass_config(16, 2048, 132).is_one_block);
}

TEST(PassConfig, a_batch_of_decodes_has_one_entry_per_thread_and_larger_passes_fit_in_a_wave) {
  EXPECT_EQ(row_cache::pick_pass_config(16, 2048, 132).items_per_thread, 1);
  EXPECT_EQ(row_cache::pick_pass_config(16, 2048, 132).num_pieces, 128);
  EXPECT_LE(row_cache::pick_pass_config(272, 2048, 132).num_pieces, 132 * row_cache::kBlocksPerSm);
}

}  // namespace
}  // namespace dhs
