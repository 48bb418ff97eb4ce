#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dhisparse/base.h"

namespace dhs {
namespace {

class Log : public testing::Test {
 protected:
  void TearDown() override { set_log_level(LogLevel::kInfo); }
};

int num_lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST_F(Log, writes_one_line_per_call_to_stderr_with_the_parts_joined) {
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  log_info("block ", 7, " of ", 8);
  log_error("second");
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_EQ(num_lines(written), 2) << written;
  EXPECT_NE(written.find("block 7 of 8\n"), std::string::npos) << written;
  EXPECT_NE(written.find("second\n"), std::string::npos) << written;
}

TEST_F(Log, drops_what_lies_below_the_level) {
  set_log_level(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  log_at(LogLevel::kDebug, "a debug line");
  log_info("an info line");
  log_warning("a warning line");
  log_error("an error line");
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_EQ(num_lines(written), 2) << written;
  EXPECT_EQ(written.find("info line"), std::string::npos) << written;
  EXPECT_NE(written.find("a warning line"), std::string::npos) << written;
  EXPECT_NE(written.find("an error line"), std::string::npos) << written;
}

TEST_F(Log, takes_braces_as_they_are) {
  testing::internal::CaptureStderr();
  log_warning("value {} of {0:d}");
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_NE(written.find("value {} of {0:d}\n"), std::string::npos) << written;
}

}  // namespace
}  // namespace dhs
