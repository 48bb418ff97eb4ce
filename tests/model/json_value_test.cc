#include "model/json_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace dhs {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& text) {
  const auto parsed = parse_json(text);
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonValue, keeps_kinds_and_the_order_of_members) {
  const auto parsed = parse_json(R"({"z": 1, "a": [true, null, -2, 0.5, "s"], "m": {}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const JsonValue::Object& members = *parsed->object();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].key, "z");
  EXPECT_EQ(members[2].key, "m");
  EXPECT_EQ(*parsed->find("z")->integer(), 1);
  const JsonValue::Array& items = *parsed->find("a")->array();
  ASSERT_EQ(items.size(), 5u);
  EXPECT_TRUE(*items[0].boolean());
  EXPECT_TRUE(items[1].is_null());
  EXPECT_EQ(*items[2].integer(), -2);
  EXPECT_EQ(*items[3].real(), 0.5);
  EXPECT_EQ(*items[4].string(), "s");
  EXPECT_TRUE(parsed->find("m")->object()->empty());
  EXPECT_EQ(parsed->find("absent"), nullptr);
}

TEST(JsonValue, names_a_duplicate_key_at_any_depth) {
  EXPECT_THAT(error_of(R"({"a": {"b": 1, "c": 2, "b": 3}})"), HasSubstr("duplicate key \"b\""));
  EXPECT_EQ(error_of(R"({"a": {"b": 1}, "c": {"b": 1}})"), "");
}

TEST(JsonValue, limits_the_depth) {
  EXPECT_EQ(error_of(nested(kMaxJsonDepth)), "");
  EXPECT_THAT(error_of(nested(kMaxJsonDepth + 1)), HasSubstr("limit of 64"));
  EXPECT_THAT(error_of(std::string(1'000'000, '[')), HasSubstr("limit of 64"));
}

TEST(JsonValue, limits_the_number_of_values) {
  std::string text = "[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) text += ",0";
  EXPECT_THAT(error_of(text + "]"), HasSubstr("more than the limit of"));
}

TEST(JsonValue, refuses_what_is_not_json) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "{} {}", "NaN", "1e999", "\"\xff\"",
                           "{\"a\" 1}", "'a'", "01"}) {
    EXPECT_THAT(error_of(text), HasSubstr("not JSON")) << text;
  }
}

TEST(JsonValue, refuses_integers_that_do_not_fit) {
  EXPECT_EQ(error_of("9223372036854775807"), "");
  EXPECT_THAT(error_of("9223372036854775808"), HasSubstr("9223372036854775808 is beyond"));
}

TEST(JsonValue, keeps_long_and_binary_input_out_of_messages) {
  const std::string error = error_of("[\"" + std::string(100'000, 'x') + "\x01\"]");
  EXPECT_THAT(error, HasSubstr("not JSON"));
  EXPECT_LT(error.size(), 300u);
  EXPECT_EQ(error.find('\x01'), std::string::npos);
}

TEST(JsonValue, excerpts_are_short_and_readable) {
  EXPECT_EQ(json_excerpt(*parse_json(R"({"a": [1, 2.5, null], "b": "t"})")),
            R"({"a": [1, 2.5, null], "b": "t"})");
  EXPECT_LT(json_excerpt(*parse_json("[" + std::string(500, '1') + "e-400]")).size(), 70u);
  EXPECT_LT(json_excerpt(*parse_json("\"" + std::string(500, 'y') + "\"")).size(), 70u);
}

}  // namespace
}  // namespace dhs
