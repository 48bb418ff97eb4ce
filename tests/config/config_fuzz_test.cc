// Damaged texts: whatever comes in, the answer is a configuration that survives printing, or a
// list of errors of the promised form.
#include <gtest/gtest.h>

#include <charconv>
#include <optional>
#include <random>
#include <sstream>

#include "dhisparse/base.h"
#include "src/config/parse_config.h"

namespace dhs {
namespace {

constexpr char kSeedText[] = R"(# comment
schema_version: 1
model:
  path: ../m
  name: "a \"b\""
device: {backend: cpu, memory: 64MiB, chunk: 2MiB}
residency:
  mode: fixed
  fixed_rows_per_request: 100
limits:
  max_request_time: 1.5h
  max_prompt: 1MB
server:
  listen: '[::1]:50051'
  reflection: false
)";

constexpr const char* kPieces[] = {"\n",        "\n  ",
                                   "  ",        ": ",
                                   "- ",        "? ",
                                   "[",         "]",
                                   "{",         "}",
                                   ", ",        "&a ",
                                   "*a",        "!!int",
                                   "|\n",       ">\n",
                                   "\"",        "'",
                                   "\\x00",     "# ",
                                   "---\n",     "...\n",
                                   "~",         "\t",
                                   "<<: ",      "%",
                                   "@",         "\xFF",
                                   "\x04",      "\xEF\xBB\xBF",
                                   "e9",        "-1",
                                   "null",      "no",
                                   ".",         "99999999999999999999",
                                   "model:\n",  "mode: fixed\n",
                                   "path: /x\n"};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (size_t left = 1 + below(6); left > 0; --left) {
      const size_t at = below(text.size() + 1);
      const size_t length = std::min(below(12), text.size() - at);
      switch (below(5)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, text.substr(below(text.size() + 1), 1 + below(40)));
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(below(256));
          break;
        default:
          text.insert(at, kPieces[below(std::size(kPieces))]);
      }
    }
    return text;
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }

  std::mt19937 random_;
};

// Reads "12:" off the front.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || *parsed.ptr != ':') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()) + 1);
  return number;
}

// Each line is "f.yaml:line:column: key: message", and the places ascend.
void expect_promised_form(const std::string& errors, const std::string& text) {
  std::pair<int, int> previous = {1, 1};
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_TRUE(line.starts_with("f.yaml:")) << line << "\nof\n" << text;
    std::string_view rest = std::string_view(line).substr(7);
    const std::optional<int> line_number = take_number(rest);
    const std::optional<int> column = take_number(rest);
    ASSERT_TRUE(line_number && column) << line << "\nof\n" << text;
    ASSERT_GT(rest.find(": "), size_t{1}) << line << "\nof\n" << text;
    ASSERT_NE(rest.find(": "), std::string_view::npos) << line << "\nof\n" << text;
    const std::pair<int, int> place = {*line_number, *column};
    ASSERT_LE(previous, place) << errors << "\nof\n" << text;
    previous = place;
  }
}

TEST(ConfigFuzz, damaged_text_gives_a_configuration_or_errors) {
  Mutator mutator(20250101);
  int num_loaded = 0;
  int num_refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = mutator.mutate(kSeedText);
    const auto loaded = parse_config(text, "f.yaml", {});
    if (loaded.ok()) {
      ++num_loaded;
      const auto again = parse_config(print_config(*loaded), "f.yaml", {});
      ASSERT_TRUE(again.ok()) << again.status() << "\nof\n" << text;
      ASSERT_EQ(again->config.model.path, loaded->config.model.path) << text;
      ASSERT_EQ(again->config.model.name, loaded->config.model.name) << text;
      continue;
    }
    ++num_refused;
    ASSERT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    expect_promised_form(std::string(loaded.status().message()), text);
    if (HasFatalFailure()) return;
  }
  // Both paths were exercised.
  EXPECT_GT(num_loaded, 100);
  EXPECT_GT(num_refused, 1000);
}

TEST(ConfigFuzz, damaged_overrides_give_a_configuration_or_errors) {
  Mutator mutator(7);
  int num_refused = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string override_text = mutator.mutate("model.name=\"a b\"");
    const auto loaded =
        parse_config("schema_version: 1\nmodel: {path: /m}\n", "f.yaml", {override_text});
    if (loaded.ok()) continue;
    ++num_refused;
    const std::string errors(loaded.status().message());
    ASSERT_TRUE(errors.starts_with("--set ")) << errors;
    ASSERT_EQ(errors.find('\n'), std::string::npos) << errors;
  }
  EXPECT_GT(num_refused, 1000);
}

}  // namespace
}  // namespace dhs
