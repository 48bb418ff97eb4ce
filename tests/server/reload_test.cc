// Reloading the configuration: what changes, what is refused, and that a refusal changes nothing.
#include <fstream>

#include "server_fixture.h"

namespace dhs {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// A server whose configuration is a file that the test writes.
class ReloadTest : public ServerTest {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "reload_test.yaml";
    write("residency: {mode: adaptive}\n");
    auto loaded = load_config(path_, overrides_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    reloader_ = std::make_unique<ConfigReloader>(path_, overrides_, *std::move(loaded), engine_);
  }
  void TearDown() override {
    set_log_level(LogLevel::kInfo);
    ServerTest::TearDown();
    std::remove(path_.c_str());
  }

  void write(const std::string& sections) {
    std::ofstream(path_) << "schema_version: 1\nmodel: {path: /m}\n" << sections;
  }

  // Refused, with this text, and nothing is different.
  void expect_refused(absl::StatusCode code, const std::string& text) {
    const ReloadCounts before = reloader_->counts();
    const int num_reconfigures = engine_.num_reconfigures();
    const auto changes = reloader_->reload();
    EXPECT_EQ(changes.status().code(), code);
    EXPECT_THAT(std::string(changes.status().message()), HasSubstr(text));
    EXPECT_EQ(engine_.num_reconfigures(), num_reconfigures);
    EXPECT_EQ(reloader_->counts().failed, before.failed + 1);
    EXPECT_EQ(reloader_->counts().succeeded, before.succeeded);
    EXPECT_FALSE(reloader_->counts().is_last_successful);
    EXPECT_EQ(reloader_->counts().last_success, before.last_success);
  }

  std::string path_;
  std::vector<std::string> overrides_ = {"scheduler.prefill_chunk=64"};
};

TEST_F(ReloadTest, takes_over_what_is_live_and_keeps_the_overrides) {
  write(
      "residency: {mode: fixed, fixed_rows_per_request: 512}\n"
      "scheduler: {max_running: 4, prefill_chunk: 128}\n"
      "log: {level: warning}\n");
  ::testing::internal::CaptureStderr();
  const auto changes = reloader_->reload();
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(changes.ok()) << changes.status();
  EXPECT_EQ(changes->size(), 4u) << "prefill_chunk is overridden";
  EXPECT_EQ(engine_.residency().mode, ResidencyMode::kFixed);
  EXPECT_EQ(engine_.residency().fixed_rows_per_request, 512);
  EXPECT_EQ(engine_.scheduler().max_running, 4);
  EXPECT_EQ(engine_.scheduler().prefill_chunk, 64);
  EXPECT_THAT(log, HasSubstr("reload: residency.mode: adaptive -> fixed\n"));
  EXPECT_THAT(log, HasSubstr("reload: scheduler.max_running: 32 -> 4\n"));
  EXPECT_THAT(log, HasSubstr("reload: log.level: info -> warning\n"));
  ::testing::internal::CaptureStderr();
  log_info("too quiet to be seen");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(reloader_->counts().succeeded, 1);
}

TEST_F(ReloadTest, changes_nothing_when_the_file_has_mistakes) {
  write("residency: {mode: sometimes}\nscheduler: {max_running: 4}\n");
  expect_refused(absl::StatusCode::kInvalidArgument, "residency.mode: 'sometimes'");
  std::remove(path_.c_str());
  expect_refused(absl::StatusCode::kNotFound, "reload_test.yaml");
}

TEST_F(ReloadTest, names_every_key_that_needs_a_restart_and_changes_none) {
  write("device: {memory: 1GiB}\nresidency: {mode: fixed}\nserver: {listen: 127.0.0.1:1}\n");
  expect_refused(absl::StatusCode::kFailedPrecondition, "device.memory: 64MiB -> 1GiB");
  expect_refused(absl::StatusCode::kFailedPrecondition,
                 "server.listen: 127.0.0.1:50051 -> 127.0.0.1:1");
}

TEST_F(ReloadTest, what_the_engine_refuses_stays_as_it_was_and_can_be_asked_for_again) {
  engine_.refuse_reconfigure_with(absl::FailedPreconditionError("memory was laid out for 32"));
  write("scheduler: {max_running: 64}\n");
  expect_refused(absl::StatusCode::kFailedPrecondition, "memory was laid out for 32");
  engine_.refuse_reconfigure_with(absl::OkStatus());
  const auto changes = reloader_->reload();
  ASSERT_TRUE(changes.ok()) << changes.status();
  ASSERT_EQ(changes->size(), 1u) << "compared with what is in force, not with what was refused";
  EXPECT_EQ((*changes)[0].before, "32");
  EXPECT_TRUE(reloader_->counts().is_last_successful);
}

TEST_F(ReloadTest, over_the_wire_answers_with_the_changes_or_the_error) {
  start();
  write("scheduler: {max_running: 3}\n");
  const auto changes = client_->reload(kPatience);
  ASSERT_TRUE(changes.ok()) << changes.status();
  ASSERT_EQ(changes->size(), 1u);
  EXPECT_EQ((*changes)[0].key, "scheduler.max_running");
  EXPECT_EQ((*changes)[0].before, "32");
  EXPECT_EQ((*changes)[0].after, "3");
  EXPECT_TRUE(client_->reload(kPatience)->empty());
  write("host: {pool: 1GiB}\n");
  EXPECT_EQ(client_->reload(kPatience).status().code(), absl::StatusCode::kFailedPrecondition);
  const auto state = client_->state(kPatience);
  ASSERT_TRUE(state->reloads.has_value());
  EXPECT_EQ(state->reloads->succeeded, 2);
  EXPECT_EQ(state->reloads->failed, 1);
  EXPECT_FALSE(state->reloads->is_last_successful);
}

TEST_F(ReloadTest, without_a_file_there_is_nothing_to_reload) {
  reloader_ = nullptr;
  start();
  EXPECT_EQ(client_->reload(kPatience).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(client_->state(kPatience)->reloads.has_value());
}

}  // namespace
}  // namespace dhs
