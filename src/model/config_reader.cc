#include "model/config_reader.h"

#include <algorithm>

namespace dhs {
namespace {

// Files write 40 and 40.0 for the same number.
std::optional<double> number_of(const JsonValue& value) {
  if (const int64_t* integer = value.integer()) return static_cast<double>(*integer);
  if (const double* real = value.real()) return *real;
  return std::nullopt;
}

}  // namespace

const JsonValue* ConfigReader::find(std::string_view key) {
  known_.emplace(key);
  const JsonValue* value = object_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

int64_t ConfigReader::integer(std::string_view key, IntegerRange range,
                              std::optional<int64_t> fallback) {
  const JsonValue* value = find(key);
  const int64_t instead = fallback.value_or(range.min);
  if (value == nullptr) {
    if (!fallback) error(key, "is missing; an integer from ", range.min, " on is required");
    return instead;
  }
  const int64_t* integer = value->integer();
  if (integer == nullptr) {
    wrong_kind(key, *value, "an integer");
    return instead;
  }
  if (*integer < range.min || *integer > range.max) {
    error(key, *integer, " is outside [", range.min, ", ", range.max, "]");
    return instead;
  }
  return *integer;
}

double ConfigReader::real(std::string_view key, RealRange range, std::optional<double> fallback) {
  const JsonValue* value = find(key);
  const double instead = fallback.value_or(range.max);
  if (value == nullptr) {
    if (!fallback) error(key, "is missing; a number above ", range.above, " is required");
    return instead;
  }
  const std::optional<double> number = number_of(*value);
  if (!number) {
    wrong_kind(key, *value, "a number");
    return instead;
  }
  if (!(*number > range.above && *number <= range.max)) {
    error(key, *number, " is outside (", range.above, ", ", range.max, "]");
    return instead;
  }
  return *number;
}

bool ConfigReader::flag(std::string_view key, bool fallback) {
  const JsonValue* value = find(key);
  if (value == nullptr) return fallback;
  if (value->boolean() == nullptr) {
    wrong_kind(key, *value, "a bool");
    return fallback;
  }
  return *value->boolean();
}

std::optional<std::string> ConfigReader::text(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->string() == nullptr) {
    wrong_kind(key, *value, "a string");
    return std::nullopt;
  }
  return *value->string();
}

std::optional<std::vector<std::string>> ConfigReader::texts(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const JsonValue::Array* items = value->array();
  const auto is_text = [](const JsonValue& item) { return item.string() != nullptr; };
  if (items == nullptr || !std::all_of(items->begin(), items->end(), is_text)) {
    wrong_kind(key, *value, "an array of strings");
    return std::nullopt;
  }
  std::vector<std::string> texts;
  for (const JsonValue& item : *items) texts.push_back(*item.string());
  return texts;
}

std::optional<std::vector<int64_t>> ConfigReader::integers(std::string_view key) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const int64_t* single = value->integer()) return std::vector<int64_t>{*single};
  const JsonValue::Array* items = value->array();
  const auto is_integer = [](const JsonValue& item) { return item.integer() != nullptr; };
  if (items == nullptr || !std::all_of(items->begin(), items->end(), is_integer)) {
    wrong_kind(key, *value, "an integer or an array of integers");
    return std::nullopt;
  }
  std::vector<int64_t> integers;
  for (const JsonValue& item : *items) integers.push_back(*item.integer());
  return integers;
}

void ConfigReader::expect_flag(std::string_view key, bool only) {
  const JsonValue* value = find(key);
  if (value == nullptr) return;
  if (value->boolean() == nullptr || *value->boolean() != only) {
    only_value(key, *value, only ? "true" : "false");
  }
}

void ConfigReader::expect_text(std::string_view key, std::string_view only) {
  const JsonValue* value = find(key);
  if (value == nullptr) return;
  if (value->string() == nullptr || *value->string() != only) {
    only_value(key, *value, absl::StrCat("\"", to_absl(only), "\""));
  }
}

void ConfigReader::expect_number(std::string_view key, double only) {
  const JsonValue* value = find(key);
  if (value != nullptr && number_of(*value) != only) only_value(key, *value, absl::StrCat(only));
}

void ConfigReader::reject_unknown() {
  for (const JsonMember& member : *object_.object()) {
    if (known_.count(member.key) > 0) continue;
    error(member.key, json_excerpt(member.value),
          ": unknown key, it may change the math; a build that knows it is needed");
  }
}

void ConfigReader::wrong_kind(std::string_view key, const JsonValue& value,
                              std::string_view wanted) {
  error(key, json_excerpt(value), " is ", json_kind_name(value), ", ", to_absl(wanted),
        " is required");
}

void ConfigReader::only_value(std::string_view key, const JsonValue& value, std::string_view only) {
  error(key, json_excerpt(value), " is not supported, only ", to_absl(only), " is");
}

}  // namespace dhs
