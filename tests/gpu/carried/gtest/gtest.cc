#include "gtest/gtest.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

namespace testing {
namespace {

struct RegisteredTest {
  std::string name;  // Suite.name
  internal::MakeTest make;
};

struct Run {
  std::vector<RegisteredTest> tests;
  std::string filter = "*";
  bool only_lists = false;
  std::vector<std::string> traces;
  bool has_failure = false;  // from here on: of the running test
  bool has_fatal_failure = false;
  int num_death_tests = 0;  // of all tests
};

// Filled before main() by static initialisers.
Run& run() {
  static Run instance;
  return instance;
}

// `*` stands for any text, `?` for any character.
bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    return matches(name, pattern.substr(1)) || (!name.empty() && matches(name.substr(1), pattern));
  }
  return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) &&
         matches(name.substr(1), pattern.substr(1));
}

bool matches_any(std::string_view name, std::string_view patterns) {
  while (!patterns.empty()) {
    const size_t end = std::min(patterns.find(':'), patterns.size());
    if (matches(name, patterns.substr(0, end))) return true;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

// "wanted:wanted-unwanted:unwanted"
bool is_selected(std::string_view name) {
  const std::string_view filter = run().filter;
  const size_t dash = std::min(filter.find('-'), filter.size());
  const std::string_view wanted = dash == 0 ? "*" : filter.substr(0, dash);
  const std::string_view unwanted = filter.substr(std::min(dash + 1, filter.size()));
  return matches_any(name, wanted) && !matches_any(name, unwanted);
}

bool passes(const RegisteredTest& registered) {
  run().has_failure = run().has_fatal_failure = false;
  const std::unique_ptr<Test> test(registered.make());
  test->SetUp();
  if (!run().has_fatal_failure) test->TestBody();
  test->TearDown();
  return !run().has_failure;
}

}  // namespace

bool Test::HasFatalFailure() { return run().has_fatal_failure; }
bool Test::HasFailure() { return run().has_failure; }

namespace internal {

bool register_test(const char* suite, const char* name, MakeTest make) {
  run().tests.push_back({std::string(suite) + "." + name, make});
  return true;
}

void Failure::operator=(const Message& message) const {
  run().has_failure = true;
  run().has_fatal_failure = run().has_fatal_failure || is_fatal_;
  std::printf("%s:%d: %s\n", file_, line_, fault_.c_str());
  if (!message.text().empty()) std::printf("    %s\n", message.text().c_str());
  for (const std::string& trace : run().traces) std::printf("    in %s\n", trace.c_str());
}

bool runs_death_test(const char*) {
  ++run().num_death_tests;
  return false;
}

ScopedTrace::ScopedTrace(const char* file, int line, const Message& message) {
  run().traces.push_back(std::string(file) + ":" + std::to_string(line) + ": " + message.text());
}
ScopedTrace::~ScopedTrace() { run().traces.pop_back(); }

bool almost_equal(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return false;
  // Floats of both signs on one line of integers.
  auto place = [](float value) {
    const auto bits = static_cast<int64_t>(std::bit_cast<uint32_t>(value));
    constexpr int64_t kSign = int64_t{1} << 31;
    return bits >= kSign ? kSign - bits : bits;
  };
  return std::abs(place(a) - place(b)) <= 4;
}

bool same_text(const char* a, const char* b) {
  return a == nullptr || b == nullptr ? a == b : std::string_view(a) == b;
}

}  // namespace internal

void InitGoogleTest(int* argc, char** argv) {
  constexpr std::string_view kFilter = "--gtest_filter=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kFilter)) run().filter = argument.substr(kFilter.size());
    if (argument == "--list") run().only_lists = true;
  }
}

int run_all_tests() {
  int num_run = 0;
  int num_failed = 0;
  for (const RegisteredTest& test : run().tests) {
    if (!is_selected(test.name)) continue;
    ++num_run;
    if (run().only_lists) {
      std::puts(test.name.c_str());
      continue;
    }
    std::printf("run %s\n", test.name.c_str());
    std::fflush(stdout);
    if (passes(test)) continue;
    ++num_failed;
    std::printf("FAILED %s\n", test.name.c_str());
  }
  if (run().only_lists) return 0;
  std::printf("%d tests, %d failed, %d death tests not run\n", num_run, num_failed,
              run().num_death_tests);
  return num_failed > 0 || num_run == 0 ? 1 : 0;
}

}  // namespace testing
