// A recorded load in the simulator: the lengths and selections of the file, request by request.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "dhisparse/trace_file.h"
#include "sim/recorded_load.h"
#include "sim_world.h"

namespace dhs {
namespace {

using testing::HasSubstr;

constexpr int32_t kTopK = 256;

class Replay : public testing::Test {
 protected:
  ~Replay() override { std::filesystem::remove(path_); }

  struct Recorded {
    uint64_t request = 0;
    Position first = 0;
    int num_rows = 0;
    int stride = 1;  // positions that a row selects lie so far apart
  };
  static std::vector<Position> positions_of(const Recorded& recorded, int row) {
    std::vector<Position> positions;
    const Position last = recorded.first + row;
    for (Position p = row % recorded.stride; p <= last; p += recorded.stride) {
      if (std::ssize(positions) < kTopK) positions.push_back(p);
    }
    return positions;
  }
  // Two index groups, which select the same.
  void record(const std::vector<Recorded>& requests) {
    auto writer = TraceWriter::create(path_, {2, kTopK});
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Recorded& recorded : requests) {
      for (int i = 0; i < 2 * recorded.num_rows; ++i) {
        const int row = i / 2;
        ASSERT_TRUE(writer
                        ->append({.request = RequestId(recorded.request),
                                  .step = static_cast<uint64_t>(row),
                                  .group = i % 2,
                                  .query = recorded.first + row,
                                  .positions = positions_of(recorded, row)})
                        .ok());
      }
    }
    ASSERT_TRUE(writer->close().ok());
  }

  SimConfig config(std::vector<std::string> overrides = {}) const {
    overrides.push_back("workload.trace=" + path_);
    overrides.push_back("workload.concurrency=16");
    overrides.push_back("run.warm=false");
    overrides.push_back("run.warmup_steps=0");
    return test::small_config(overrides);
  }

  const std::string path_ = testing::TempDir() + "replay_" + std::to_string(::getpid()) + ".trace";
};

TEST_F(Replay, misses_are_those_of_the_recorded_rows) {
  // The one selects the same 256 rows in every step, and misses them once. The other takes turns
  // between 8 sets of 256 rows, and misses each of them once where all 2,048 stay resident.
  record({{.request = 7, .first = 4000, .num_rows = 40},
          {.request = 9, .first = 4000, .num_rows = 40, .stride = 8}});
  const SimConfig sim = config({"run.measured_steps=20"});
  ASSERT_TRUE(validate(sim).ok()) << validate(sim);
  const SimReport report = run_simulation(sim);
  EXPECT_EQ(report.config.run.sampled_groups, 2);
  EXPECT_EQ(report.mean_running, 2);
  EXPECT_EQ(report.rows.selected, 2 * 2 * 20 * kTopK);
  EXPECT_EQ(report.rows.missed, 2 * (kTopK + 8 * kTopK));
}

TEST_F(Replay, requests_have_their_recorded_lengths_and_begin_again_in_turn) {
  record(
      {{.request = 1, .first = 100, .num_rows = 5}, {.request = 2, .first = 300, .num_rows = 9}});
  const auto load = sim::RecordedLoad::read(path_);
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ(load->num_requests(), 2);
  EXPECT_EQ(load->first_tokens(1), 300);
  EXPECT_EQ(load->num_rows(0), 5);
  EXPECT_EQ(load->longest_prompt(), 300);
  EXPECT_EQ(load->most_rows(), 9);
  // Far more steps than either has rows.
  const SimReport report = run_simulation(config({"run.measured_steps=60"}));
  EXPECT_EQ(report.steps, 60);
  EXPECT_EQ(report.max_running, 2);
}

TEST_F(Replay, drafts_are_verified_on_recorded_rows_too) {
  record({{.request = 1, .first = 500, .num_rows = 64}});
  const SimReport report =
      run_simulation(config({"draft.name=d", "draft.num_tokens=3", "draft.acceptance=0.5"}));
  EXPECT_GT(report.acceptance_length, 1.2);
}

TEST_F(Replay, says_what_is_wrong_with_a_recording) {
  EXPECT_THAT(std::string(validate(config()).message()), HasSubstr("cannot open trace file"));
  record({});
  EXPECT_THAT(std::string(validate(config()).message()), HasSubstr("no request has a query row"));
  record({{.request = 1, .first = 100, .num_rows = 5}});
  EXPECT_THAT(std::string(validate(config({"model.top_k=512"})).message()),
              HasSubstr("was recorded with a top-k of 256, model.top_k is 512"));
}

}  // namespace
}  // namespace dhs
