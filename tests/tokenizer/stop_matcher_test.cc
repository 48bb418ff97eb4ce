#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "dhisparse/tokenizer.h"

namespace dhs {
namespace {

using Stops = std::vector<std::string>;

StopMatcher must_create(const Stops& stops, const StopOptions& options = {}) {
  auto matcher = StopMatcher::create(stops, options);
  DHS_CHECK(matcher.ok(), matcher.status().ToString());
  return *std::move(matcher);
}

struct Result {
  std::string text;
  std::optional<size_t> stop_idx;
  int64_t begin_byte = -1;
  int64_t end_byte = -1;
  friend bool operator==(const Result&, const Result&) = default;
};

void PrintTo(const Result& r, std::ostream* out) {
  *out << "'" << r.text << "' stop " << testing::PrintToString(r.stop_idx) << " at ["
       << r.begin_byte << ", " << r.end_byte << ")";
}

Result run(const Stops& stops, const std::vector<std::string>& parts, StopOptions options = {}) {
  StopMatcher matcher = must_create(stops, options);
  Result result;
  for (const std::string& part : parts) {
    StopMatcher::Output output = matcher.push(part);
    result.text += output.text;
    if (!output.match) continue;
    EXPECT_FALSE(result.stop_idx) << "matched twice";
    result.stop_idx = output.match->stop_idx;
    result.begin_byte = output.match->begin_byte;
    result.end_byte = output.match->end_byte;
  }
  EXPECT_EQ(matcher.stopped(), result.stop_idx.has_value());
  result.text += matcher.flush();
  return result;
}

// The definition: the match whose end comes first, of those the longest, of those the first listed.
Result run_naively(const Stops& stops, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool is_longer = !best || stops[i].size() > stops[*best].size();
      if (is_longer && std::string_view(text).substr(0, end).ends_with(stops[i])) best = i;
    }
    if (!best) continue;
    const size_t begin = end - stops[*best].size();
    return {text.substr(0, include ? end : begin), *best, static_cast<int64_t>(begin),
            static_cast<int64_t>(end)};
  }
  return {.text = text, .stop_idx = {}};
}

TEST(StopMatcher, passes_everything_without_stop_strings) {
  EXPECT_EQ(run({}, {"any", " text"}), (Result{"any text", {}}));
}

TEST(StopMatcher, matches_across_pushes_and_drops_the_rest) {
  EXPECT_EQ(run({"</think>"}, {"so<", "/th", "ink> more", "even more"}), (Result{"so", 0, 2, 10}));
}

TEST(StopMatcher, includes_the_stop_string_on_request) {
  EXPECT_EQ(run({"END"}, {"aE", "ND b"}, {.include_stop_in_output = true}),
            (Result{"aEND", 0, 1, 4}));
}

TEST(StopMatcher, holds_back_only_a_prefix_of_a_stop_string) {
  StopMatcher matcher = must_create({"</think>", "stop"});
  EXPECT_EQ(matcher.push("a < b").text, "a < b");
  EXPECT_EQ(matcher.push(" </thin").text, " ");
  EXPECT_EQ(matcher.push("g").text, "</thing");
  EXPECT_EQ(matcher.push("sst").text, "s");
  EXPECT_EQ(matcher.push("x").text, "stx");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, gives_out_what_was_held_back_at_the_end) {
  StopMatcher matcher = must_create({"stop"});
  EXPECT_EQ(matcher.push("sto").text, "");
  EXPECT_EQ(matcher.flush(), "sto");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, never_cuts_a_character) {
  StopMatcher matcher = must_create({"\u00E9\u00E8"});
  EXPECT_EQ(matcher.push("\u00E9").text, "");
  EXPECT_EQ(matcher.push("\u00EA").text, "\u00E9\u00EA") << "shares its first byte with the stop";
  EXPECT_EQ(matcher.push("\u00E9\u00E9").text, "\u00E9");
}

TEST(StopMatcher, prefers_the_first_end_then_the_longest_then_the_first_listed) {
  EXPECT_EQ(run({"abcd", "bc"}, {"abcd"}), (Result{"a", 1, 1, 3}));
  EXPECT_EQ(run({"c", "bc", "abc"}, {"xabc"}), (Result{"x", 2, 1, 4}));
  EXPECT_EQ(run({"a", "ab"}, {"ab"}), (Result{"", 0, 0, 1}));
  EXPECT_EQ(run({"x", "x"}, {"x"}), (Result{"", 0, 0, 1}));
}

TEST(StopMatcher, gives_the_same_for_any_split_as_the_definition) {
  std::mt19937 rng(3);
  const Stops letters = {"a", "b", "\u00E9", "\u00E8"};
  const auto random_text = [&](size_t max_letters) {
    std::string text;
    for (size_t n = 1 + rng() % max_letters; n > 0; --n) text += letters[rng() % letters.size()];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    Stops stops;
    for (size_t n = rng() % 4; n > 0; --n) stops.push_back(random_text(6) + random_text(3));
    std::vector<std::string> parts;
    std::string text;
    for (size_t n = rng() % 12; n > 0; --n) {
      parts.push_back(random_text(5));
      text += parts.back();
    }
    const bool include = rng() % 2 == 0;
    EXPECT_EQ(run(stops, parts, {.include_stop_in_output = include}),
              run_naively(stops, text, include))
        << testing::PrintToString(stops) << testing::PrintToString(parts);
  }
}

TEST(StopMatcher, is_linear_in_a_text_that_nearly_matches_everywhere) {
  const std::string stop = std::string(255, 'a') + "b";
  EXPECT_EQ(run({stop}, std::vector<std::string>(4000, std::string(256, 'a'))).text.size(),
            size_t{4000 * 256});
}

TEST(StopMatcher, refuses_what_is_over_its_limits) {
  const auto message = [](const Stops& stops, const StopOptions& options = {}) {
    const absl::Status status = StopMatcher::create(stops, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message({"a", ""}), testing::HasSubstr("stop string 1 is empty"));
  EXPECT_THAT(message({std::string(257, 'a')}), testing::HasSubstr("257 bytes; the limit is 256"));
  EXPECT_THAT(message({"a\xFF"}), testing::HasSubstr("not UTF-8 at byte 1"));
  EXPECT_THAT(message(Stops(17, "a")), testing::HasSubstr("17 stop strings; the limit is 16"));
  EXPECT_THAT(message(Stops(3, "a"), {.max_num_stops = 2}), testing::HasSubstr("limit is 2"));
}

}  // namespace
}  // namespace dhs
