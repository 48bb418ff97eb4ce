#include "kernels/resolve/resolve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <set>
#include <unordered_map>

namespace dhs {
namespace {

constexpr int32_t kBlockTokens = 64;

// A row cache in ordinary memory with the capacity in segments.
struct Cache {
  Cache(int64_t num_host_rows, int32_t slots_per_segment, int32_t max_num_segments)
      : slot_of(num_host_rows, kAbsent),
        owner_of(slots_per_segment * max_num_segments, kNoOwner),
        last_used(owner_of.size()),
        free_ring(owner_of.size()) {
    state.slot_of = view(slot_of.data(), slot_of.size());
    state.owner_of = view(owner_of.data(), owner_of.size());
    state.last_used = view(last_used.data(), last_used.size());
    state.free_ring = view(free_ring.data(), free_ring.size());
    state.head = &head;
    state.slots_per_segment = slots_per_segment;
  }
  void grow(int num_segments) {
    for (int i = 0; i < num_segments; ++i) launch_add_segment(state, {});
  }

  std::vector<int32_t> slot_of;
  std::vector<int64_t> owner_of;
  std::vector<uint32_t> last_used;
  std::vector<int32_t> free_ring;
  RowCacheHead head;
  RowCacheState state;
};

struct Resolved {
  std::vector<int32_t> slots;
  std::vector<FetchOrder> misses;
};

// Sequences on consecutive host blocks: sequence s owns blocks [s * blocks_each, ...).
class Resolver {
 public:
  Resolver(Cache& cache, int num_sequences, int blocks_each) : cache_(cache) {
    blocks_.resize(num_sequences * blocks_each);
    for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<int32_t>(i);
    num_sequences_ = num_sequences;
    blocks_each_ = blocks_each;
  }

  Resolved resolve(const std::vector<std::vector<int32_t>>& selection,
                   const std::vector<int32_t>& sequence_of_row) {
    const auto num_rows = static_cast<int64_t>(selection.size());
    const auto top_k = static_cast<int64_t>(selection.front().size());
    std::vector<int32_t> flat;
    for (const auto& row : selection) flat.insert(flat.end(), row.begin(), row.end());
    Resolved out;
    out.slots.assign(flat.size(), -7);
    out.misses.resize(flat.size());
    int32_t num_misses = 0;
    ResolveParams params;
    params.cache = cache_.state;
    params.selection = view<const int32_t>(flat.data(), num_rows, top_k);
    params.sequence_of_row = view<const int32_t>(sequence_of_row.data(), num_rows);
    params.block_table = view<const int32_t>(blocks_.data(), num_sequences_, blocks_each_);
    params.block_tokens = kBlockTokens;
    params.slots = view(out.slots.data(), num_rows, top_k);
    params.misses = view(out.misses.data(), out.misses.size());
    params.num_misses = &num_misses;
    params.counters = &counters;
    launch_resolve(params, {});
    out.misses.resize(num_misses);
    return out;
  }

  ResolveCounters counters;

 private:
  Cache& cache_;
  std::vector<int32_t> blocks_;
  int num_sequences_ = 0;
  int blocks_each_ = 0;
};

TEST(Resolve, pads_with_absent_and_fetches_a_shared_row_once) {
  Cache cache(256, 8, 1);
  cache.grow(1);
  Resolver resolver(cache, 2, 2);
  const Resolved first = resolver.resolve({{3, 5, -1}, {5, 7, -1}}, {0, 0});
  ASSERT_EQ(first.misses.size(), 3u);
  EXPECT_EQ(first.misses[0].host_row, 3);
  EXPECT_EQ(first.misses[1].host_row, 5);
  EXPECT_EQ(first.misses[2].host_row, 7);
  EXPECT_EQ(first.slots[2], kAbsent);
  EXPECT_EQ(first.slots[1], first.slots[3]);
  EXPECT_EQ(resolver.counters.selected, 4);
  EXPECT_EQ(resolver.counters.hit, 0);
  EXPECT_EQ(resolver.counters.missed, 3);
  const Resolved second = resolver.resolve({{3, 5, 7}}, {0});
  EXPECT_TRUE(second.misses.empty());
  EXPECT_EQ(resolver.counters.hit, 3);
  EXPECT_EQ(check_row_cache(cache.state), nullptr);
}

TEST(Resolve, sequences_do_not_see_each_others_rows) {
  Cache cache(256, 8, 1);
  cache.grow(1);
  Resolver resolver(cache, 2, 2);
  const Resolved out = resolver.resolve({{3}, {3}}, {0, 1});
  ASSERT_EQ(out.misses.size(), 2u);
  EXPECT_EQ(out.misses[0].host_row, 3);
  EXPECT_EQ(out.misses[1].host_row, 128 + 3);
  EXPECT_NE(out.slots[0], out.slots[1]);
}

TEST(RowCache, never_evicts_a_row_stamped_in_this_pass) {
  Cache cache(1024, 16, 1);
  cache.grow(1);
  Resolver resolver(cache, 1, 16);
  std::mt19937 random(1);
  for (int step = 0; step < 500; ++step) {
    std::set<int32_t> wanted;
    while (wanted.size() < 16) wanted.insert(static_cast<int32_t>(random() % 1024));
    const std::vector<int32_t> row(wanted.begin(), wanted.end());
    const Resolved out = resolver.resolve({row}, {0});
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_GE(out.slots[i], 0);
      ASSERT_EQ(cache.owner_of[out.slots[i]], row[i]) << "step " << step;
    }
    ASSERT_EQ(check_row_cache(cache.state), nullptr);
  }
}

TEST(RowCacheDeathTest, a_selection_larger_than_the_cache_stops_the_process) {
  Cache cache(1024, 4, 1);
  cache.grow(1);
  Resolver resolver(cache, 1, 16);
  EXPECT_DEATH(resolver.resolve({{1, 2, 3, 4, 5}}, {0}), "selection does not fit");
}

TEST(RowCache, invalidate_frees_exactly_the_rows_of_a_block) {
  Cache cache(256, 16, 1);
  cache.grow(1);
  Resolver resolver(cache, 1, 4);
  resolver.resolve({{1, 2, 63, 64, 130}}, {0});
  launch_invalidate(cache.state, 0, kBlockTokens, {});
  EXPECT_EQ(cache.slot_of[1], kAbsent);
  EXPECT_EQ(cache.slot_of[63], kAbsent);
  EXPECT_NE(cache.slot_of[64], kAbsent);
  EXPECT_EQ(cache.head.num_free, 14);
  EXPECT_EQ(check_row_cache(cache.state), nullptr);
}

TEST(RowCache, claim_takes_slots_without_orders_and_stops_when_all_are_stamped) {
  Cache cache(256, 4, 1);
  cache.grow(1);
  ResolveCounters counters;
  const std::vector<int64_t> rows = {10, 11, 12, 13, 14, 15};
  launch_claim({.cache = cache.state,
                .host_rows = view<const int64_t>(rows.data(), rows.size()),
                .counters = &counters},
               {});
  for (int row = 10; row < 14; ++row) EXPECT_NE(cache.slot_of[row], kAbsent) << row;
  EXPECT_EQ(cache.slot_of[14], kAbsent);
  EXPECT_EQ(cache.slot_of[15], kAbsent);
  EXPECT_EQ(check_row_cache(cache.state), nullptr);
}

// Steps of one new row and 63 wanted ones in 64 slots; how often the new row lost its slot.
int count_lost_claims(bool protect_in_next_pass) {
  Cache cache(4096, 64, 1);
  cache.grow(1);
  Resolver resolver(cache, 1, 64);
  std::mt19937 random(5);
  int num_lost = 0;
  for (int32_t step = 0; step < 200; ++step) {
    const std::vector<int64_t> rows = {3000 + step};
    launch_claim({.cache = cache.state,
                  .host_rows = view<const int64_t>(rows.data(), rows.size()),
                  .protect_in_next_pass = protect_in_next_pass,
                  .counters = &resolver.counters},
                 {});
    std::set<int32_t> wanted;
    while (wanted.size() < 63) wanted.insert(static_cast<int32_t>(random() % 3000));
    resolver.resolve({{wanted.begin(), wanted.end()}}, {0});
    num_lost += cache.slot_of[3000 + step] == kAbsent ? 1 : 0;
    EXPECT_EQ(check_row_cache(cache.state), nullptr);
  }
  return num_lost;
}

TEST(RowCache, a_protected_claim_survives_the_pass_that_follows) {
  EXPECT_EQ(count_lost_claims(true), 0);
  EXPECT_GT(count_lost_claims(false), 0);
}

TEST(RowCache, release_moves_protected_rows_and_drops_the_others) {
  Cache cache(1024, 8, 3);
  cache.grow(3);
  Resolver resolver(cache, 1, 16);
  std::vector<int32_t> old_rows(20);
  for (int i = 0; i < 20; ++i) old_rows[i] = i;
  resolver.resolve({old_rows}, {0});
  // A new segment's slots are used first: rows 0..7 lie in the last one.
  const std::vector<int32_t> hot = {0, 1, 2, 3, 100, 101};
  resolver.resolve({hot}, {0});
  const uint32_t protected_tick = cache.head.tick;

  std::vector<MoveOrder> moves(24);
  int32_t num_moves = 0;
  int64_t num_dropped = 0;
  launch_release_segment(
      {cache.state, protected_tick, view(moves.data(), moves.size()), &num_moves, &num_dropped},
      {});
  EXPECT_EQ(cache.head.num_live, 16);
  for (int32_t row : hot) {
    ASSERT_NE(cache.slot_of[row], kAbsent) << "protected row " << row << " was dropped";
    EXPECT_LT(cache.slot_of[row], 16);
  }
  EXPECT_EQ(num_moves, 4);
  EXPECT_EQ(num_dropped, 6);  // rows 4..7, and two that made room where no slot was free
  std::set<int32_t> targets;
  for (int32_t i = 0; i < num_moves; ++i) {
    EXPECT_GE(moves[i].from_slot, 16);
    EXPECT_LT(moves[i].to_slot, 16);
    EXPECT_TRUE(targets.insert(moves[i].to_slot).second) << "two moves to one slot";
  }
  EXPECT_EQ(check_row_cache(cache.state), nullptr);
}

TEST(RowCache, release_keeps_optional_rows_too_while_free_slots_last) {
  Cache cache(1024, 8, 2);
  cache.grow(2);
  Resolver resolver(cache, 1, 16);
  resolver.resolve({{64, 65, 66, 67, 68}}, {0});  // a new segment's slots are used first
  const uint32_t nothing_protected = cache.head.tick + 1;
  std::vector<MoveOrder> moves(16);
  int32_t num_moves = 0;
  int64_t num_dropped = 0;
  launch_release_segment(
      {cache.state, nothing_protected, view(moves.data(), moves.size()), &num_moves, &num_dropped},
      {});
  EXPECT_EQ(num_moves, 5);
  EXPECT_EQ(num_dropped, 0);
  for (int row = 64; row <= 68; ++row) EXPECT_NE(cache.slot_of[row], kAbsent) << row;
  EXPECT_EQ(check_row_cache(cache.state), nullptr);
}

TEST(RowCache, ticks_that_wrap_around_lose_no_row_of_the_running_pass) {
  Cache cache(1024, 16, 1);
  cache.grow(1);
  Resolver resolver(cache, 1, 16);
  cache.head.tick = UINT32_MAX - 3;
  for (int32_t step = 0; step < 8; ++step) {
    std::vector<int32_t> row(12);
    for (int32_t i = 0; i < 12; ++i) row[i] = step * 5 + i;
    const Resolved out = resolver.resolve({row}, {0});
    for (size_t i = 0; i < row.size(); ++i) ASSERT_EQ(cache.owner_of[out.slots[i]], row[i]);
    ASSERT_EQ(check_row_cache(cache.state), nullptr);
  }
  EXPECT_LT(cache.head.tick, 8u);
}

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
  for (int capacity : {256, 512, 1024}) {
    Cache cache(kContext, capacity / 4, 4);
    cache.grow(4);
    Resolver resolver(cache, 1, kContext / kBlockTokens);
    Lru lru(capacity);
    std::mt19937 random(7);
    std::vector<int32_t> selection;
    int64_t lru_missed = 0;
    int64_t missed = 0;
    for (int step = 0; step < 1500; ++step) {
      selection = next_selection(selection, kContext, kTopK, random);
      const int64_t before = resolver.counters.missed;
      resolver.resolve({selection}, {0});
      const int64_t lru_step = lru.touch(selection);
      if (step < 200) continue;  // both caches warm
      missed += resolver.counters.missed - before;
      lru_missed += lru_step;
    }
    EXPECT_LE(missed, lru_missed * 1.03) << "capacity " << capacity;
    EXPECT_GT(lru_missed, 0);
  }
}

// Random passes of every kind over a small cache; the invariants must hold after each.
TEST(RowCache, invariants_hold_over_random_passes) {
  Cache cache(2048, 32, 8);
  cache.grow(2);
  Resolver resolver(cache, 4, 8);
  std::mt19937 random(3);
  std::vector<MoveOrder> moves(256);
  for (int step = 0; step < 20000; ++step) {
    const int kind = static_cast<int>(random() % 8);
    const int32_t num_segments = cache.head.num_live / 32;
    if (kind == 0 && num_segments < 8) {
      cache.grow(1);
    } else if (kind == 1 && num_segments > 2) {
      int32_t num_moves = 0;
      int64_t dropped = 0;
      launch_release_segment(
          {cache.state, cache.head.tick, view(moves.data(), moves.size()), &num_moves, &dropped},
          {});
    } else if (kind == 2) {
      launch_invalidate(cache.state, (random() % 32) * kBlockTokens, kBlockTokens, {});
    } else {
      std::vector<std::vector<int32_t>> selection(4, std::vector<int32_t>(16, -1));
      std::vector<int32_t> sequences;
      for (auto& row : selection) {
        std::set<int32_t> rows;
        while (rows.size() < random() % 15 + 1) rows.insert(static_cast<int32_t>(random() % 512));
        std::copy(rows.begin(), rows.end(), row.begin());
        sequences.push_back(static_cast<int32_t>(random() % 4));
      }
      resolver.resolve(selection, sequences);
    }
    ASSERT_EQ(check_row_cache(cache.state), nullptr) << "step " << step << " kind " << kind;
  }
}

}  // namespace
}  // namespace dhs
