// json_value: a JSON document as a plain tree. Hostile input is refused, never trusted: nesting and
// the number of values are limited, a duplicate key and a number beyond int64 are errors.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dhs {

inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = size_t{8} << 20;  // bounds the tree to about 1 GiB

struct JsonMember;

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  // in the order of the document, keys unique

  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value); }
  // Null when the value is of another kind. An integer is not a double here, nor the reverse.
  const bool* boolean() const { return std::get_if<bool>(&value); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value); }
  const double* real() const { return std::get_if<double>(&value); }
  const std::string* string() const { return std::get_if<std::string>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Object* object() const { return std::get_if<Object>(&value); }

  // The member of an object called `key`; null when there is none or this is no object. Linear.
  const JsonValue* find(std::string_view key) const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// "a bool", "an object", ...: for messages.
const char* json_kind_name(const JsonValue& value);
// The value as compact JSON, cut to about 60 characters: for messages.
std::string json_excerpt(const JsonValue& value);

// INVALID_ARGUMENT says where and why, without naming the file.
absl::StatusOr<JsonValue> parse_json(std::string_view text);

}  // namespace dhs
