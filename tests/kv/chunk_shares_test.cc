#include "kv/chunk_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace dhs {
namespace {

// ---- Curves from counts -------------------------------------------------------------------------

TEST(AgeBucket, holds_a_power_of_two_and_what_follows_it) {
  EXPECT_EQ(age_bucket(1), 0);
  EXPECT_EQ(age_bucket(2), 1);
  EXPECT_EQ(age_bucket(3), 1);
  EXPECT_EQ(age_bucket(4), 2);
  EXPECT_EQ(age_bucket(1 << 15), 15);
  EXPECT_EQ(age_bucket(int64_t{1} << 40), kNumAgeBuckets - 1);
}

TEST(MissCurve, nothing_counted_says_nothing) {
  EXPECT_TRUE(miss_curve({}, 1000).empty());
  EXPECT_EQ(misses_at({}, 10), 0);
}

// A pass takes 100 rows: 60 of the pass before, 20 of the one before that, 20 never seen.
TEST(MissCurve, goes_through_what_the_working_set_says) {
  RowReuse reuse = {.num_passes = 10, .num_missed = 200, .capacity_rows = 220};
  reuse.hits_by_age[0] = 600;
  reuse.hits_by_age[1] = 200;
  const RowMissCurve curve = miss_curve(reuse, 100000);
  EXPECT_DOUBLE_EQ(misses_at(curve, 0), 100);
  EXPECT_DOUBLE_EQ(misses_at(curve, 100), 40);  // one pass: 100 rows, 40 of the next are not in it
  // Ages 2 and 3 share a bucket, 10 rows each: a window of three passes holds 100 + 40 + 30 rows.
  EXPECT_DOUBLE_EQ(misses_at(curve, 170), 20);
  EXPECT_DOUBLE_EQ(misses_at(curve, 100000), 0);
}

TEST(MissCurve, goes_on_along_its_last_power_law) {
  RowReuse reuse = {.num_passes = 1, .num_missed = 25, .capacity_rows = 200};
  reuse.hits_by_age[0] = 50;  // 50 miss at 100 rows
  reuse.hits_by_age[1] = 25;  // and 25 at 100 + 50 + 37.5
  const RowMissCurve curve = miss_curve(reuse, 1 << 20);
  const double power = std::log(2) / std::log(1.875);
  for (double rows : {375.0, 750.0, 1500.0}) {
    EXPECT_NEAR(misses_at(curve, rows), 25 * std::pow(rows / 187.5, -power), 1e-9) << rows;
  }
  EXPECT_LT(misses_at(curve, 500), misses_at(curve, 375));
}

TEST(MissCurve, never_rises_and_is_convex) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 300; ++trial) {
    RowReuse reuse = {.num_passes = 1 + static_cast<int64_t>(random() % 50)};
    for (int64_t& hits : reuse.hits_by_age) {
      hits = static_cast<int64_t>(random() % 1000) >> (random() % 10);
    }
    reuse.num_missed = static_cast<int64_t>(random() % 500);
    reuse.capacity_rows = 1 + static_cast<int64_t>(random() % 20000);
    const RowMissCurve curve = miss_curve(reuse, 30000);
    double last_slope = -std::numeric_limits<double>::infinity();
    for (size_t i = 1; i < curve.size(); ++i) {
      ASSERT_GT(curve[i].rows, curve[i - 1].rows);
      ASSERT_GE(curve[i].missed, 0);
      ASSERT_LE(curve[i].missed, curve[i - 1].missed);
      const double slope =
          (curve[i].missed - curve[i - 1].missed) / (curve[i].rows - curve[i - 1].rows);
      ASSERT_GE(slope, last_slope);
      last_slope = slope;
    }
    ASSERT_EQ(misses_at(curve, 30000), 0);
  }
}

// ---- Shares -------------------------------------------------------------------------------------

double fetched_bytes(const std::vector<ChunkClaim>& claims, const std::vector<int64_t>& shares) {
  double bytes = 0;
  for (size_t i = 0; i < claims.size(); ++i) {
    const auto rows = static_cast<double>(shares[i] * claims[i].rows_per_chunk);
    bytes += static_cast<double>(claims[i].record_bytes) * misses_at(claims[i].curve, rows);
  }
  return bytes;
}

// The least bytes that any shares fetch.
double least_bytes(const std::vector<ChunkClaim>& claims, std::vector<int64_t>& shares,
                   int64_t num_chunks) {
  const size_t group = shares.size();
  if (group == claims.size()) return fetched_bytes(claims, shares);
  double least = std::numeric_limits<double>::infinity();
  const int64_t most = std::min(claims[group].max_chunks, num_chunks);
  for (int64_t chunks = claims[group].min_chunks; chunks <= most; ++chunks) {
    shares.push_back(chunks);
    least = std::min(least, least_bytes(claims, shares, num_chunks - chunks));
    shares.pop_back();
  }
  return least;
}

ChunkClaim random_claim(std::mt19937& random) {
  ChunkClaim claim;
  claim.record_bytes = 100 * (1 + static_cast<int64_t>(random() % 4));
  claim.rows_per_chunk = 1200 / claim.record_bytes;
  claim.min_chunks = static_cast<int64_t>(random() % 3);
  claim.max_chunks = claim.min_chunks + static_cast<int64_t>(random() % 8);
  RowReuse reuse = {.num_passes = 1, .num_missed = static_cast<int64_t>(random() % 20)};
  for (int j = 0; j < 4; ++j) reuse.hits_by_age[j] = static_cast<int64_t>(random() % 20);
  reuse.capacity_rows = 100;
  claim.curve = miss_curve(reuse, 150);
  return claim;
}

TEST(ChunkShares, no_shares_fetch_fewer_bytes) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<ChunkClaim> claims;
    int64_t required = 0, most = 0;
    for (int group = 0; group < 4; ++group) {
      claims.push_back(random_claim(random));
      required += claims.back().min_chunks;
      most += claims.back().max_chunks;
    }
    const int64_t num_chunks = required + static_cast<int64_t>(random() % 12);
    const std::vector<int64_t> shares = share_chunks(claims, num_chunks);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}),
              std::min(num_chunks, most));
    for (size_t i = 0; i < claims.size(); ++i) {
      EXPECT_GE(shares[i], claims[i].min_chunks);
      EXPECT_LE(shares[i], claims[i].max_chunks);
    }
    std::vector<int64_t> scratch;
    EXPECT_NEAR(fetched_bytes(claims, shares), least_bytes(claims, scratch, num_chunks), 1e-6);
  }
}

TEST(ChunkShares, equal_groups_get_equal_shares_and_ties_go_to_the_lower) {
  ChunkClaim claim = {.record_bytes = 10, .rows_per_chunk = 4, .max_chunks = 100};
  claim.curve = {{0, 100}, {40, 20}, {400, 0}};
  EXPECT_EQ(share_chunks(std::vector<ChunkClaim>{claim, claim, claim}, 61),
            (std::vector<int64_t>{41, 10, 10}));
}

TEST(ChunkShares, power_laws_get_the_shares_of_the_closed_form) {
  // missed = m * rows^-1 asks for rows in proportion to sqrt(m).
  std::vector<ChunkClaim> claims;
  for (double m : {1.0, 4.0, 16.0, 64.0}) {
    ChunkClaim claim = {
        .record_bytes = 1, .rows_per_chunk = 1, .min_chunks = 1, .max_chunks = 100000};
    for (double rows = 1; rows < 1e5; rows *= 1.01) claim.curve.push_back({rows, m * 1e4 / rows});
    claims.push_back(claim);
  }
  const std::vector<int64_t> shares = share_chunks(claims, 15000);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(shares[i]), 1000 * std::exp2(i), 25 * std::exp2(i)) << i;
  }
}

TEST(ChunkSharesDeathTest, fewer_chunks_than_are_required_stop_the_process) {
  const std::vector<ChunkClaim> claims = {{.min_chunks = 3, .max_chunks = 4}};
  EXPECT_DEATH(share_chunks(claims, 2), "1 chunks too few");
}

}  // namespace
}  // namespace dhs
