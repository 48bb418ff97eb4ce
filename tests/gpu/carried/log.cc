// The log without spdlog: one line per call, to stderr.
#include <atomic>
#include <cstdio>

#include "dhisparse/base.h"

namespace dhs {
namespace {

std::atomic<LogLevel>& lowest_level() {
  static std::atomic<LogLevel> level = LogLevel::kInfo;
  return level;
}

}  // namespace

void set_log_level(LogLevel level) { lowest_level() = level; }

void log_at(LogLevel level, const std::string& message) {
  if (level < lowest_level().load()) return;
  std::fprintf(stderr, "%c %s\n", "DIWE"[static_cast<int>(level)], message.c_str());
}

}  // namespace dhs
