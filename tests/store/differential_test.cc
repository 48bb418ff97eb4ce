// Random sequences over tiny pools, compared with the naive model after every step.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "store_world.h"

namespace dhs {
namespace {

struct Mix {
  WorldShape shape;
  uint32_t seed = 0;
  int num_steps = 0;
};

struct Seen {
  int64_t missed = 0;
  int64_t evicted = 0;
  int64_t refilled = 0;
  int64_t released_chunks = 0;
  int most_tiles = 0;
  size_t most_running = 0;
};

class RandomLife {
 public:
  explicit RandomLife(const Mix& mix) : mix_(mix), world_(mix.shape, mix.seed), random_(mix.seed) {}

  Seen live() {
    Seen seen;
    for (int step = 0; step < mix_.num_steps; ++step) {
      come_and_go();
      seen.most_running = std::max(seen.most_running, running_.size());
      world_.step(next_parts());
      if (testing::Test::HasFatalFailure()) {
        ADD_FAILURE() << "seed " << mix_.seed << ", step " << step;
        return seen;
      }
    }
    for (size_t group = 0; group < world_.store().geometry().groups.size(); ++group) {
      const RowCacheCounters counters = world_.counters(static_cast<int>(group));
      seen.missed += counters.resolve.missed;
      seen.evicted += counters.resolve.evicted;
      seen.refilled += counters.refilled;
    }
    seen.released_chunks = world_.num_released_chunks();
    seen.most_tiles = world_.most_tiles();
    return seen;
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % limit); }

  void come_and_go() {
    if (below(3) == 0) {
      const int64_t max_tokens = 1 + below(220);
      if (world_.kv().fits(max_tokens).ok()) {
        if (const auto sequence = world_.admit(max_tokens)) running_.push_back(*sequence);
      }
    }
    if (!running_.empty() && below(6) == 0) {
      const int gone = below(static_cast<int>(running_.size()));
      world_.release(running_[gone]);
      running_.erase(running_.begin() + gone);
    }
  }

  // Some of the running sequences, in random order, with one new token, a chunk, or a rewrite.
  std::vector<StepPart> next_parts() {
    std::shuffle(running_.begin(), running_.end(), random_);
    std::vector<StepPart> parts;
    int64_t budget = mix_.shape.max_query_rows;
    for (int sequence : running_) {
      if (below(5) == 0) continue;
      const int64_t num_tokens = world_.num_tokens(sequence);
      const int64_t left = world_.max_tokens(sequence) - num_tokens;
      StepPart part{.sequence = sequence};
      part.rewind = below(4) == 0 ? static_cast<int>(std::min<int64_t>(num_tokens, below(6))) : 0;
      part.num_new = static_cast<int>(std::min<int64_t>(left, below(3) == 0 ? below(40) : 1));
      if (part.num_new + part.rewind == 0 || part.num_new + part.rewind > budget) continue;
      budget -= part.num_new + part.rewind;
      parts.push_back(part);
    }
    return parts;
  }

  const Mix mix_;
  StoreWorld world_;
  std::mt19937 random_;
  std::vector<int> running_;
};

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8};
constexpr ResidencyMode kModes[] = {ResidencyMode::kAdaptive, ResidencyMode::kFixed,
                                    ResidencyMode::kResident};

TEST(StoreDifferential, both_tiers_agree_with_the_naive_model_over_random_lives) {
  Seen total;
  for (uint32_t seed = 1; seed <= (test::kOnCuda ? 4 : 18); ++seed) {
    WorldShape shape{.row_format = kFormats[seed % 3],
                     .index_format = kFormats[(seed / 3) % 3],
                     .residency = {kModes[(seed / 2) % 3], 20},
                     .num_host_blocks = 14,
                     .num_chunks = seed % 2 == 0 ? 60 : 34,
                     .chunk_bytes = seed % 4 == 0 ? 5008 : 8192,
                     .max_query_rows = 64,
                     .retrieval = seed % 3 == 1 ? Retrieval::kFused : Retrieval::kGather,
                     .refill_rows = seed % 2 == 1 ? 12 : 0};
    if (seed % 5 == 0) shape.layers_per_group = {2, 4};
    const Seen seen = RandomLife({shape, seed, test::kOnCuda ? 30 : 150}).live();
    if (HasFatalFailure()) return;
    total.missed += seen.missed;
    total.evicted += seen.evicted;
    total.refilled += seen.refilled;
    total.released_chunks += seen.released_chunks;
    total.most_tiles = std::max(total.most_tiles, seen.most_tiles);
    total.most_running = std::max(total.most_running, seen.most_running);
  }
  // The lives must have seen what they are meant to test.
  if (test::kOnCuda) {
    EXPECT_GT(total.missed, 50);
    EXPECT_GT(total.evicted, 50);
    return;
  }
  EXPECT_GT(total.missed, 1000);
  EXPECT_GT(total.evicted, 1000);
  EXPECT_GT(total.refilled, 200);
  EXPECT_GT(total.released_chunks, 100);
  EXPECT_GT(total.most_tiles, 5);
  EXPECT_GE(total.most_running, 4u);
}

}  // namespace
}  // namespace dhs
