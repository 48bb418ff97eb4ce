// The cost model against a roofline computed apart, with a closed form of the miss ratio.
#include "sim/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/capacity.h"
#include "sim_world.h"

namespace dhs {
namespace {

using sim::CostModel;
using sim::StepLoad;
using test::committed;

// The published fit: 14.2 % with 2k rows, falling like rows^-1.05, 0 at the context's end.
double closed_miss(double rows, double context, double top_k) {
  if (rows >= context) return 0;
  const auto power = [top_k](double r) { return std::pow(r / (2 * top_k), -1.05); };
  return 0.142 * (power(std::max(rows, top_k)) - power(context)) / (1 - power(context));
}

// A step of `requests` on every GPU with `rows_each` query rows, that misses as given.
StepTimes times_of(const SimConfig& config, double requests, double rows_each, double miss) {
  const CostModel cost(config);
  const double rows = requests * rows_each;
  const double scan = cost.scan_rows(static_cast<double>(config.workload.context));
  const auto fetched = static_cast<double>(config.model.rows_per_selection * config.model.top_k);
  return cost.times({.query_rows = rows,
                     .all_query_rows = rows * config.deployment.num_gpus,
                     .scanned_rows = requests * scan,
                     .scored_rows = rows * scan,
                     .fetched_rows = rows * fetched * miss,
                     .is_verify = rows_each > 1});
}

void expect_ms(double seconds, double expected_ms) {
  EXPECT_NEAR(seconds * 1e3, expected_ms, 0.002 * expected_ms);
}

TEST(CostModel, gives_the_parts_of_a_step_with_a_fixed_buffer) {
  const SimConfig config = committed({"b200", "glm-5.3", "fitted"});
  const StepTimes times = times_of(config, 16, 1, closed_miss(4096, 1e5, 2048));
  expect_ms(times.gemm, 16.54017);
  expect_ms(times.index, 0.7392);
  expect_ms(times.top_k, 0.1008);
  expect_ms(times.attention, 0.59823);
  expect_ms(times.exchange, 0.50556);
  expect_ms(times.fetch, 2.64542);
  expect_ms(times.fixed, 7.74);
  EXPECT_EQ(times.draft, 0);
  expect_ms(times.total(), 28.86938);
}

TEST(CostModel, gives_the_step_of_a_part_without_fp4_units) {
  const SimConfig config = committed({"h200", "glm-5.3"});
  const StepTimes times = times_of(config, 32, 1, closed_miss(4096, 1e5, 2048));
  expect_ms(times.gemm, 27.96539);
  expect_ms(times.fetch, 5.95219);
  expect_ms(times.total(), 45.95143);
}

TEST(CostModel, charges_verify_rows_and_the_draft) {
  const SimConfig config = committed({"b200", "glm-5.3", "fitted", "dflash2"});
  const StepTimes times = times_of(config, 16, 8, 0.0051882);
  expect_ms(times.attention, 4.78582);
  expect_ms(times.exchange, 4.04451);
  expect_ms(times.draft, 1.71875);
  EXPECT_NEAR(times.fetch * 1e3, 1.54647, 0.02);
  EXPECT_NEAR(times.total() * 1e3, 38.82346, 0.1);
}

TEST(CostModel, scans_a_capped_part_of_the_index_where_the_model_does) {
  const SimConfig config = committed({"b200", "deepseek-v4.1-flash", "dspark"},
                                     {"deployment.num_gpus=4", "workload.context=500000"});
  const StepTimes times = times_of(config, 128, 6, 0.000382);
  expect_ms(times.gemm, 12.34299);
  expect_ms(times.index, 5.25501);
  expect_ms(times.top_k, 3.03099);
  expect_ms(times.attention, 4.11451);
  expect_ms(times.total(), 37.59453);
}

TEST(CostModel, hides_the_share_of_the_fetch_that_the_step_has) {
  SimConfig config = committed({"b200", "glm-5.3"});
  config.cost.hide = 0.25;
  config.cost.hide_verify = 0.75;
  const StepTimes plain = times_of(config, 8, 1, 0.1);
  const StepTimes verify = times_of(config, 4, 2, 0.1);
  EXPECT_NEAR(plain.fetch / verify.fetch, 3, 1e-9);
}

TEST(CostModel, interpolates_the_link_between_measured_row_sizes) {
  SimConfig config = committed({"b200", "glm-5.3"});
  const auto rate = [&config](int64_t row_bytes) {
    config.model.row_bytes = row_bytes;
    return CostModel(config).link_bandwidth();
  };
  EXPECT_EQ(rate(100), 30e9);
  EXPECT_EQ(rate(288), 30e9);
  EXPECT_NEAR(rate(472), 37.5e9, 1);
  EXPECT_EQ(rate(656), 45e9);
  EXPECT_EQ(rate(1152), 50e9);
  EXPECT_EQ(rate(4000), 50e9);
}

// Requests that fit a deployment of 8 x B200, by the roofline: 77 resident, at 100K tokens.
TEST(Capacity, holds_as_many_resident_requests_as_the_arithmetic_says) {
  const SimConfig config = committed({"b200", "glm-5.3"}, {"residency.mode=resident"});
  const auto capacity = sim::plan_capacity(config);
  ASSERT_TRUE(capacity.ok()) << capacity.status();
  const double request_bytes = 1e5 * (51168 + 2772);
  EXPECT_NEAR(8 * static_cast<double>(capacity->summary.pool_bytes) / request_bytes, 77.046, 0.1);
}

TEST(Capacity, splits_records_and_index_keys_into_sampled_groups_without_a_rest) {
  for (int num_groups : {1, 2, 3, 5, 7, 21}) {
    SimConfig config = committed({"b200", "glm-5.3"});
    config.run.sampled_groups = num_groups;
    const KvGeometry geometry = sim::make_sampled_geometry(config);
    int64_t record_bytes = 0;
    for (const GroupGeometry& group : geometry.groups) record_bytes += group.record_bytes;
    EXPECT_EQ(record_bytes, 51168) << num_groups;
    EXPECT_EQ(geometry.index_item_bytes, 64 * 2772) << num_groups;
  }
}

TEST(Capacity, reserves_draft_memory_for_requests_that_can_run) {
  const SimConfig plain = committed({"b200", "glm-5.3"});
  const SimConfig drafted = committed({"b200", "glm-5.3", "dflash2"});
  const auto without = sim::plan_capacity(plain);
  const auto with = sim::plan_capacity(drafted);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ(with->summary.draft_requests, 16);
  EXPECT_EQ(without->summary.pool_bytes - with->summary.pool_bytes,
            int64_t{4'600'000'000} + 16 * 50331648);
  EXPECT_EQ(without->geometry.decode_rows, 2049);
  EXPECT_EQ(with->geometry.decode_rows, 6357);  // 2048 * (1 + 0.3 * 7) + 8, rounded up
}

TEST(Capacity, names_what_leaves_no_room) {
  const SimConfig config = committed({"h200", "glm-5.3"}, {"deployment.num_gpus=4"});
  const absl::Status status = validate(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("hardware.hbm"), std::string::npos) << status;
}

}  // namespace
}  // namespace dhs
