// The loads of the trace suite (bench/simulate): what is recorded is run as it was.
#include "load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "trace/selections.h"

namespace dhs {
namespace {

using bench::Load;
using testing::HasSubstr;

class LoadTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() / (std::string(test->name()) + ".trace");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_;
};

Load small_load() {
  const SelectionProfile profile = test::scaled_profile(128, 3);
  return bench::draw_load(
      {.name = "small", .profiles = {profile, profile}, .context = 600, .num_steps = 5, .seed = 7});
}

TEST_F(LoadTest, a_recorded_load_has_the_steps_of_the_drawn_one) {
  const Load drawn = small_load();
  ASSERT_TRUE(bench::write_load(drawn, path_).ok());
  const absl::StatusOr<Load> read = bench::read_load(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->groups, drawn.groups);
  EXPECT_EQ(read->num_requests, 2);
  EXPECT_EQ(read->top_k, 128);
  EXPECT_EQ(read->rows_each, drawn.rows_each);
}

TEST_F(LoadTest, a_pass_holds_every_row_of_a_step_once_and_ends_with_those_it_writes) {
  Load load = {.num_requests = 2, .rows_each = 64, .top_k = 4};
  load.groups = {{{{.request = 1, .position = 9, .positions = {2, 3, 9}},
                   {.request = 1, .position = 10, .positions = {3, 9, 10}},
                   {.request = 0, .position = 5, .positions = {1, 2}}}}};
  const std::vector<trace::Pass> passes = bench::passes_of(load, 0);
  ASSERT_EQ(passes.size(), 1u);
  EXPECT_EQ(passes[0].rows, (std::vector<int32_t>{1, 2, 66, 67, 5, 73, 74}));
  EXPECT_EQ(passes[0].num_written, 3);
}

TEST_F(LoadTest, a_requests_own_load_has_its_query_rows_alone) {
  const Load all = small_load();
  const Load own = all.of_request(1);
  ASSERT_EQ(own.num_steps(), all.num_steps());
  for (int64_t step = 0; step < all.num_steps(); ++step) {
    ASSERT_EQ(own.groups[2][step].size(), 1u);
    EXPECT_EQ(own.groups[2][step][0], all.groups[2][step][1]);
  }
}

TEST_F(LoadTest, a_trace_without_a_selection_is_refused) {
  ASSERT_TRUE(bench::write_load({.top_k = 4, .groups = {{}}}, path_).ok());
  const absl::Status status = bench::read_load(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it holds no selection"));
}

}  // namespace
}  // namespace dhs
