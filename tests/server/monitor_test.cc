// /metrics, /healthz and /readyz over a real port.
#include "dhisparse/monitor.h"

#include <gmock/gmock.h>

#include "http_get.h"
#include "server_fixture.h"

namespace dhs {
namespace {

using ::testing::HasSubstr;

class MonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto monitor = start_monitor("127.0.0.1:0", "1.2.3");
    ASSERT_TRUE(monitor.ok()) << monitor.status();
    monitor_ = *std::move(monitor);
  }

  HttpResponse get(const std::string& path) { return http_get(monitor_->address(), path); }

  FakeEngine engine_;
  std::unique_ptr<Monitor> monitor_;
};

TEST_F(MonitorTest, is_ready_exactly_while_requests_are_served) {
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/readyz").body, "not ready: the model is loading\n");
  monitor_->watch(&engine_, nullptr);
  EXPECT_EQ(get("/readyz").status, 503);
  monitor_->set_phase(Monitor::Phase::kServing);
  EXPECT_EQ(get("/readyz").status, 200);
  EXPECT_EQ(get("/readyz").body, "ready\n");
  monitor_->set_phase(Monitor::Phase::kDraining);
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/readyz").body, "not ready: draining\n");
}

TEST_F(MonitorTest, is_not_ready_once_no_step_can_run_and_is_alive_all_the_same) {
  monitor_->watch(&engine_, nullptr);
  monitor_->set_phase(Monitor::Phase::kServing);
  engine_.fail_with(absl::AbortedError("rank 1 is gone"));
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_EQ(get("/readyz").body, "not ready: rank 1 is gone\n");
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_THAT(get("/metrics").body, HasSubstr("dhisparse_engine_failed{model_name=\"fake\"} 1\n"));
}

TEST_F(MonitorTest, shows_the_figures_of_what_it_watches_and_of_nobody_afterwards) {
  EXPECT_THAT(get("/metrics").body, HasSubstr("dhisparse_ready 0\n"));
  monitor_->watch(&engine_, nullptr);
  const HttpResponse scrape = get("/metrics");
  EXPECT_EQ(scrape.status, 200);
  EXPECT_THAT(scrape.head, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
  EXPECT_THAT(scrape.body, HasSubstr("dhisparse_requests_running{model_name=\"fake\"} 0\n"));
  monitor_->watch(nullptr, nullptr);
  EXPECT_EQ(get("/metrics").body.find("requests_running"), std::string::npos);
}

TEST_F(MonitorTest, serves_nothing_else) {
  EXPECT_EQ(get("/").status, 404);
  EXPECT_EQ(get("/etc/passwd").status, 404);
  EXPECT_EQ(get("/metrics/").status, 404);
  EXPECT_EQ(get("/metrics?name=x").status, 200) << "a query is not part of the path";
  EXPECT_EQ(http_request("POST", monitor_->address(), "/metrics").status, 405);
  const HttpResponse head = http_request("HEAD", monitor_->address(), "/healthz");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

TEST_F(MonitorTest, names_the_address_it_cannot_bind) {
  const auto second = start_monitor(monitor_->address(), "1.2.3");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("server.metrics: cannot listen on " + monitor_->address()));
}

}  // namespace
}  // namespace dhs
