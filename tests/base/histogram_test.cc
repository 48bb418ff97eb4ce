#include "dhisparse/histogram.h"

#include <gtest/gtest.h>

namespace dhs {
namespace {

TEST(Histogram, counts_an_edge_in_the_bucket_it_closes_and_what_is_above_all) {
  Histogram histogram{1, 2, 4};
  for (const double value : {0.5, 1.0, 1.5, 2.0, 4.0, 4.5, 100.0}) histogram.observe(value);
  EXPECT_EQ(histogram.counts[0], 2);
  EXPECT_EQ(histogram.counts[1], 2);
  EXPECT_EQ(histogram.counts[2], 1);
  EXPECT_EQ(histogram.counts[3], 2);
  EXPECT_EQ(histogram.count(), 7);
  EXPECT_DOUBLE_EQ(histogram.sum, 113.5);
}

TEST(Histogram, counts_one_value_several_times) {
  Histogram histogram{1, 2};
  histogram.observe(1.5, 3);
  EXPECT_EQ(histogram.counts[1], 3);
  EXPECT_DOUBLE_EQ(histogram.sum, 4.5);
}

TEST(Histogram, quantiles_are_spread_evenly_within_a_bucket) {
  Histogram histogram{10, 20, 40};
  EXPECT_EQ(histogram.quantile(0.5), std::nullopt);
  histogram.observe(5, 2);
  histogram.observe(15, 2);
  EXPECT_DOUBLE_EQ(*histogram.quantile(0.25), 5);
  EXPECT_DOUBLE_EQ(*histogram.quantile(0.5), 10);
  EXPECT_DOUBLE_EQ(*histogram.quantile(0.75), 15);
  EXPECT_DOUBLE_EQ(*histogram.quantile(1), 20);
  histogram.observe(1000, 96);
  EXPECT_DOUBLE_EQ(*histogram.quantile(0.5), 40) << "nobody knows how far above";
}

}  // namespace
}  // namespace dhs
