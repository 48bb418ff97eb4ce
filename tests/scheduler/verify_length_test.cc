// The ratio test against all lengths there are, and what acceptance it is told.
#include "scheduler/verify_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace dhs {
namespace {

using Numbers = std::vector<double>;

TEST(VerifyLength, stops_at_the_first_draft_that_brings_less_than_the_rate) {
  EXPECT_EQ(verify_length(Numbers{0.9, 0.9, 0.9}, 50, 0.01), 3);
  EXPECT_EQ(verify_length(Numbers{0.9, 0.6, 0.9}, 55, 0.01), 1) << "0.54 is below 0.55";
  EXPECT_EQ(verify_length(Numbers{0.5, 1, 1}, 50, 0.01), 0) << "as much as the rate is not more";
  EXPECT_EQ(verify_length(Numbers{}, 50, 0.01), 0);
}

TEST(VerifyLength, takes_all_drafts_where_a_row_costs_nothing) {
  EXPECT_EQ(verify_length(Numbers{0.1, 0.1}, 0, 0.01), 2);
  EXPECT_EQ(verify_length(Numbers{0.1, 0.1}, 50, 0), 2);
  EXPECT_EQ(verify_length(Numbers{0.1, 0.1}, 50, -0.01), 2);
}

// Whether a draft is verified must not change with what is known only after it, which may say
// something about its own token.
TEST(VerifyLength, what_follows_a_draft_does_not_decide_on_it) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 500; ++round) {
    Numbers acceptance(6);
    for (double& c : acceptance) c = unit(random);
    const double rate = 40 * unit(random);
    const int64_t length = verify_length(acceptance, rate, 0.01);
    for (int64_t j = 0; j < 6; ++j) {
      Numbers other = acceptance;
      for (int64_t later = j + 1; later < 6; ++later) other[later] = unit(random);
      ASSERT_EQ(verify_length(other, rate, 0.01) > j, length > j);
    }
  }
}

TEST(VerifyLength, never_grows_with_the_rate_or_the_cost_of_a_row) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 200; ++round) {
    Numbers acceptance(5);
    for (double& c : acceptance) c = unit(random);
    int64_t before = 5;
    for (double rate = 1; rate < 200; rate *= 1.3) {
      const int64_t length = verify_length(acceptance, rate, 0.01);
      ASSERT_LE(length, before);
      ASSERT_EQ(length, verify_length(acceptance, 2 * rate, 0.005));
      before = length;
    }
  }
}

// ---- Against every choice of lengths ------------------------------------------------------------

struct Batch {
  std::vector<Numbers> acceptance;  // by request
  Numbers row_s;
  double base_s = 0;

  double rate_of(const std::vector<int64_t>& lengths) const {
    double tokens = 0;
    double seconds = base_s;
    for (size_t i = 0; i < lengths.size(); ++i) {
      double survival = 1;
      tokens += 1;
      for (int64_t j = 0; j < lengths[i]; ++j) tokens += survival *= acceptance[i][j];
      seconds += static_cast<double>(1 + lengths[i]) * row_s[i];
    }
    return tokens / seconds;
  }
  double best_rate(std::vector<int64_t>& lengths, size_t request) const {
    if (request == acceptance.size()) return rate_of(lengths);
    double best = 0;
    for (int64_t n = 0; n <= std::ssize(acceptance[request]); ++n) {
      lengths[request] = n;
      best = std::max(best, best_rate(lengths, request + 1));
    }
    return best;
  }
};

TEST(VerifyLength, at_a_fixed_point_no_lengths_are_better) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 1000; ++round) {
    Batch batch;
    batch.base_s = 0.05 * unit(random);
    const size_t num_requests = 1 + random() % 4;
    for (size_t i = 0; i < num_requests; ++i) {
      batch.acceptance.emplace_back(random() % 4);
      for (double& c : batch.acceptance.back()) c = unit(random);
      batch.row_s.push_back(0.0005 + 0.02 * unit(random));
    }
    std::vector<int64_t> lengths(num_requests);
    double rate = batch.rate_of(lengths);
    for (int iteration = 0; iteration < 20; ++iteration) {
      for (size_t i = 0; i < num_requests; ++i) {
        lengths[i] = verify_length(batch.acceptance[i], rate, batch.row_s[i]);
      }
      const double next = batch.rate_of(lengths);
      ASSERT_GE(next, rate * (1 - 1e-12)) << "an iteration never loses";
      rate = next;
    }
    ASSERT_NEAR(rate, batch.best_rate(lengths, 0), 1e-9 * rate);
  }
}

// ---- Acceptance ---------------------------------------------------------------------------------

TEST(AcceptanceHistory, counts_the_drafts_that_were_tried) {
  AcceptanceHistory history(1);
  EXPECT_EQ(history.acceptance(0, 0.7, 1), 0.7);
  history.observe(3, 1);  // the first accepted, the second rejected, the third never tried
  EXPECT_EQ(history.acceptance(0, 0.7, 0), 1);
  EXPECT_EQ(history.acceptance(1, 0.7, 0), 0);
  EXPECT_EQ(history.acceptance(2, 0.7, 1), 0.7);
  history.observe(2, 2);
  EXPECT_EQ(history.acceptance(1, 0.7, 0), 0.5);
  EXPECT_EQ(history.acceptance(1, 0.2, 2), (1 + 2 * 0.2) / 4) << "the prior counts as two";
  history.observe(0, 0);
  EXPECT_EQ(history.acceptance(0, 0.7, 0), 1) << "nothing was tried";
}

TEST(AcceptanceHistory, forgets_what_was_long_ago) {
  AcceptanceHistory history(0.9);
  for (int i = 0; i < 100; ++i) history.observe(1, 0);
  EXPECT_LT(history.acceptance(0, 1, 1), 0.15);
  for (int i = 0; i < 30; ++i) history.observe(1, 1);
  EXPECT_GT(history.acceptance(0, 1, 1), 0.9);
}

TEST(ConfidenceCalibration, begins_with_the_confidence_and_moves_to_what_came_of_it) {
  ConfidenceCalibration calibration;
  EXPECT_EQ(calibration.calibrated(0.9), 0.9);
  EXPECT_EQ(calibration.calibrated(0.0), 0.0);
  std::mt19937 random(4);
  for (int i = 0; i < 4000; ++i) calibration.observe(0.9, random() % 100 < 60);
  EXPECT_NEAR(calibration.calibrated(0.9), 0.6, 0.08);
  EXPECT_EQ(calibration.calibrated(0.5), 0.5) << "nothing is known of less sure drafts";
  EXPECT_EQ(calibration.calibrated(std::nan("")), 1);
  EXPECT_LE(calibration.calibrated(1.0), 1.0);
}

}  // namespace
}  // namespace dhs
