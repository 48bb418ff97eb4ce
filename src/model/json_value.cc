#include "model/json_value.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "dhisparse/base.h"

namespace dhs {
namespace {

constexpr size_t kMaxReasonBytes = 200;
constexpr size_t kMaxExcerptBytes = 60;

// The library quotes what it read last, which may be long or not text at all.
std::string printable_prefix(std::string_view text, size_t max_bytes) {
  std::string prefix(text.substr(0, max_bytes));
  for (char& c : prefix) {
    if (c < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > max_bytes) prefix += "...";
  return prefix;
}

// Builds the tree from the parser's events. We take events, not the library's own tree, because
// that one keeps the last of two equal keys and says nothing.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail(absl::StrCat("number ", value, " is beyond the limit of 2^63 - 1"));
    }
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return fail("binary data is not JSON"); }

  bool start_object(std::size_t) override { return open(JsonValue::Object{}); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    const auto& members = std::get<JsonValue::Object>(open_.back()->value);
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const JsonMember& member : members) keys.push_back(member.key);
    std::sort(keys.begin(), keys.end());
    const auto twin = std::adjacent_find(keys.begin(), keys.end());
    if (twin != keys.end()) {
      return fail(absl::StrCat("duplicate key \"", printable_prefix(*twin, kMaxReasonBytes),
                               "\"; remove one of the two"));
    }
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return open(JsonValue::Array{}); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& exception) override {
    std::string_view what = exception.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const size_t id_end = what.find("] ");
    if (id_end != std::string_view::npos) what.remove_prefix(id_end + 2);
    return fail(printable_prefix(what, kMaxReasonBytes));
  }

  JsonValue take_root() { return std::move(root_); }
  const std::string& reason() const { return reason_; }

 private:
  // Null when a limit is hit.
  JsonValue* place(JsonValue value) {
    if (++num_values_ > kMaxJsonValues) {
      fail(absl::StrCat("more than the limit of ", kMaxJsonValues, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* items = std::get_if<JsonValue::Array>(&open_.back()->value)) {
      return &items->emplace_back(std::move(value));
    }
    auto& members = std::get<JsonValue::Object>(open_.back()->value);
    return &members.emplace_back(JsonMember{std::move(key_), std::move(value)}).value;
  }

  template <class T>
  bool add(T value) {
    return place(JsonValue{std::move(value)}) != nullptr;
  }

  template <class Container>
  bool open(Container container) {
    if (open_.size() == kMaxJsonDepth) {
      return fail(absl::StrCat("nested deeper than the limit of ", kMaxJsonDepth));
    }
    JsonValue* placed = place(JsonValue{std::move(container)});
    if (placed == nullptr) return false;
    open_.push_back(placed);
    return true;
  }

  bool fail(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }

  JsonValue root_;
  // The containers around the next value, outermost first. A parent does not grow while its last
  // child is open, so the pointers stay valid.
  std::vector<JsonValue*> open_;
  std::string key_;
  std::string reason_;
  size_t num_values_ = 0;
};

void append_excerpt(const JsonValue& value, std::string& out);

void append_string(const std::string& text, std::string& out) {
  absl::StrAppend(&out, "\"", printable_prefix(text, kMaxExcerptBytes), "\"");
}

void append_array(const JsonValue::Array& items, std::string& out) {
  out += '[';
  for (size_t i = 0; i < items.size() && out.size() <= kMaxExcerptBytes; ++i) {
    if (i > 0) out += ", ";
    append_excerpt(items[i], out);
  }
  out += ']';
}

void append_object(const JsonValue::Object& members, std::string& out) {
  out += '{';
  for (size_t i = 0; i < members.size() && out.size() <= kMaxExcerptBytes; ++i) {
    if (i > 0) out += ", ";
    append_string(members[i].key, out);
    out += ": ";
    append_excerpt(members[i].value, out);
  }
  out += '}';
}

void append_excerpt(const JsonValue& value, std::string& out) {
  if (value.is_null()) out += "null";
  if (const bool* flag = value.boolean()) out += *flag ? "true" : "false";
  if (const int64_t* integer = value.integer()) absl::StrAppend(&out, *integer);
  if (const double* real = value.real()) absl::StrAppend(&out, *real);
  if (const std::string* text = value.string()) append_string(*text, out);
  if (const JsonValue::Array* items = value.array()) append_array(*items, out);
  if (const JsonValue::Object* members = value.object()) append_object(*members, out);
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const char* json_kind_name(const JsonValue& value) {
  constexpr const char* kNames[] = {"null",     "a bool",   "an integer", "a real number",
                                    "a string", "an array", "an object"};
  return kNames[value.value.index()];
}

std::string json_excerpt(const JsonValue& value) {
  std::string text;
  append_excerpt(value, text);
  return printable_prefix(text, kMaxExcerptBytes);
}

absl::StatusOr<JsonValue> parse_json(std::string_view text) {
  TreeBuilder builder;
  bool parsed = false;
  try {
    parsed = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& exception) {
    return absl::InvalidArgumentError(absl::StrCat("not JSON: ", exception.what()));
  }
  if (!parsed) return absl::InvalidArgumentError(absl::StrCat("not JSON: ", builder.reason()));
  return builder.take_root();
}

}  // namespace dhs
