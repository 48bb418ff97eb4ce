// Row caches sized by marginal value against row caches of one size, on selections whose groups
// differ as real ones do. The counts come from what resolve can see: the stamps of the slots that
// it hits.
#include <gtest/gtest.h>

#include "dhisparse/trace.h"
#include "kv/chunk_shares.h"
#include "trace/selections.h"
#include "trace/simulated_row_cache.h"

namespace dhs {
namespace {

using test::SimulatedRowCache;

constexpr int kRowsPerChunk = 64;
constexpr int kTicksPerStep = 2;   // a claim and a pass
constexpr int kNumMeasured = 800;  // steps whose hits are counted
constexpr int kNumSteps = 2400;
constexpr int kNumWarmUp = 400;  // of either size

class GroupRun {
 public:
  GroupRun(const std::vector<trace::Pass>& passes, int32_t num_slots)
      : passes_(passes),
        cache_({.rows_each =
                    static_cast<int32_t>(round_up(passes.back().rows.back() + 1, kHostBlockTokens)),
                .num_slots = num_slots}) {
    reuse_.capacity_rows = num_slots;
  }

  void run(int first, int last) {
    for (int step = first; step < last; ++step) {
      const std::vector<int32_t>& rows = passes_[step].rows;
      cache_.claim({rows.back()});
      if (step >= first + kNumWarmUp) count(rows);
      const int64_t missed = cache_.resolve({0}, {rows});
      if (step >= first + kNumWarmUp) reuse_.num_missed += missed;
    }
  }
  const RowReuse& reuse() const { return reuse_; }

 private:
  void count(const std::vector<int32_t>& rows) {
    ++reuse_.num_passes;
    for (int32_t row : rows) {
      const int64_t age = cache_.age(row) / kTicksPerStep;
      // The step's own row was claimed: it is no reuse.
      if (age > 0 && row != rows.back()) ++reuse_.hits_by_age[age_bucket(age)];
    }
  }

  const std::vector<trace::Pass>& passes_;
  SimulatedRowCache cache_;
  RowReuse reuse_;
};

using Passes = std::vector<std::vector<trace::Pass>>;

int64_t misses_of(const Passes& passes, const std::vector<int64_t>& chunks) {
  int64_t missed = 0;
  for (size_t group = 0; group < passes.size(); ++group) {
    GroupRun run(passes[group], static_cast<int32_t>(chunks[group] * kRowsPerChunk));
    run.run(kNumMeasured, kNumSteps);
    missed += run.reuse().num_missed;
  }
  return missed;
}

TEST(ChunkShares, by_marginal_value_miss_fifteen_percent_less_than_equal_shares) {
  const SelectionProfile profile = test::scaled_profile(256, 21);
  const SelectionModel model(profile);
  const Passes passes = test::make_passes(model, 21, kNumSteps);
  const int64_t equal_chunks = 2 * profile.top_k / kRowsPerChunk;
  std::vector<ChunkClaim> claims;
  for (const auto& group : passes) {
    GroupRun run(group, static_cast<int32_t>(equal_chunks * kRowsPerChunk));
    run.run(0, kNumMeasured);
    const int64_t context = group[kNumMeasured].rows.back() + 1;
    claims.push_back({.curve = miss_curve(run.reuse(), context),
                      .record_bytes = 1,  // all alike, so that rows are what is saved
                      .rows_per_chunk = kRowsPerChunk,
                      .min_chunks = ceil_div(profile.top_k + 1, kRowsPerChunk),
                      .max_chunks = ceil_div(context, kRowsPerChunk)});
  }
  const std::vector<int64_t> equal(claims.size(), equal_chunks);
  const std::vector<int64_t> shares =
      share_chunks(claims, equal_chunks * static_cast<int64_t>(claims.size()));
  const auto before = static_cast<double>(misses_of(passes, equal));
  const auto after = static_cast<double>(misses_of(passes, shares));
  EXPECT_LE(after, 0.85 * before) << 100 * (1 - after / before) << " % fewer";
}

}  // namespace
}  // namespace dhs
