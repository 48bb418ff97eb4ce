// Row caches that the accounting sizes by what they miss, against row caches of one size, on
// selections whose groups differ as real ones do: the real accounting, controller and row cache.
#include <gtest/gtest.h>

#include "dhisparse/kv.h"
#include "dhisparse/trace.h"
#include "trace/selections.h"
#include "trace/simulated_row_cache.h"

namespace dhs {
namespace {

using test::SimulatedRowCache;

constexpr int64_t kRowBytes = 64;
constexpr int64_t kRowsPerChunk = 64;
constexpr int64_t kPageBytes = 64;
constexpr absl::Duration kStep = absl::Milliseconds(25);

using Passes = std::vector<std::vector<trace::Pass>>;

class Loop {  // one request that decodes
 public:
  Loop(const Passes& passes, int64_t rows_per_group)
      : passes_(passes),
        max_tokens_(round_up(passes[0].back().rows.back() + 1, kHostBlockTokens)),
        num_blocks_(static_cast<int32_t>(max_tokens_ / kHostBlockTokens)),
        kv_(geometry(), capacity(rows_per_group), {.headroom_steps = 0}),
        memory_(*kv_.admit(max_tokens_)) {
    const auto num_slots = static_cast<int32_t>(kv_.capacity().num_chunks * kRowsPerChunk);
    for (size_t g = 0; g < passes.size(); ++g) {
      caches_.emplace_back(SimulatedRowCache::Shape{.rows_each = static_cast<int32_t>(max_tokens_),
                                                    .num_slots = num_slots,
                                                    .slots_per_segment = kRowsPerChunk});
    }
  }

  // Misses of steps [first, last).
  int64_t run(int64_t first, int64_t last, bool is_observed) {
    int64_t total = 0;
    for (int64_t step = first; step < last; ++step) {
      now_ += kStep;
      for (const ChunkMove& move : kv_.rebalance(now_)) apply(move);
      std::vector<GroupTraffic> traffic;
      for (size_t g = 0; g < caches_.size(); ++g) {
        const std::vector<int32_t>& rows = passes_[g][step].rows;
        caches_[g].claim({rows.back()});
        traffic.push_back({.rows_missed = caches_[g].resolve({0}, {rows})});
        traffic.back().rows_resident = caches_[g].num_resident();
        total += traffic.back().rows_missed;
      }
      if (is_observed) kv_.observe(traffic, kStep);
    }
    for (SimulatedRowCache& cache : caches_) EXPECT_EQ(cache.check(), nullptr);
    EXPECT_EQ(kv_.check_invariants(), "");
    return total;
  }

  int64_t num_chunks(int group) const { return kv_.usage().chunks_rows[group]; }

 private:
  KvGeometry geometry() const {
    const std::vector<int32_t> layers(passes_.size(), 1);
    return make_geometry(layers, kRowBytes, kPageBytes,
                         static_cast<int32_t>(passes_[0].back().rows.size()));
  }
  KvCapacity capacity(int64_t rows_per_group) const {
    const int64_t chunk_bytes = kRowBytes * kRowsPerChunk;
    const int64_t index = ceil_div(num_blocks_, geometry().index_items_per_chunk(chunk_bytes));
    const int64_t rows = std::ssize(passes_) * rows_per_group / kRowsPerChunk;
    return {num_blocks_, static_cast<int32_t>(index + rows), chunk_bytes};
  }
  void apply(const ChunkMove& move) {
    if (move.kind == ChunkMove::Kind::kGrowRows) caches_[move.group].add_segment();
    if (move.kind == ChunkMove::Kind::kReleaseRows) caches_[move.group].release_segment();
  }

  const Passes& passes_;
  const int64_t max_tokens_;
  const int32_t num_blocks_;
  KvManager kv_;
  SequenceMemory memory_;
  std::vector<SimulatedRowCache> caches_;
  absl::Time now_ = absl::UnixEpoch();
};

TEST(GroupShares, by_what_they_miss_save_fifteen_percent_of_the_misses) {
  constexpr int64_t kWarm = 1200, kLast = 2400;
  const SelectionProfile profile = test::scaled_profile(256, 21);
  const SelectionModel model(profile);
  const Passes passes = test::make_passes(model, 21, kLast);
  Loop equal(passes, 2 * profile.top_k);
  Loop shared(passes, 2 * profile.top_k);
  equal.run(0, kWarm, false);
  shared.run(0, kWarm, true);
  const auto before = static_cast<double>(equal.run(kWarm, kLast, false));
  const auto after = static_cast<double>(shared.run(kWarm, kLast, true));
  RecordProperty("saved_per_mille", static_cast<int>(1000 * (1 - after / before)));
  EXPECT_LE(after, 0.85 * before) << 100 * (1 - after / before) << " % fewer";
  for (int g = 0; g < profile.num_groups; ++g) EXPECT_EQ(equal.num_chunks(g), 8) << g;
}

}  // namespace
}  // namespace dhs
