// config_reader: takes known keys out of one JSON object, notes every mistake, and names what is
// left.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/base.h"
#include "model/json_value.h"

namespace dhs {

// A key whose value is null counts as absent everywhere: that is how these files say "not set".
class ConfigReader {
 public:
  struct IntegerRange {
    int64_t min = 0;
    int64_t max = 0;
  };
  struct RealRange {
    double above = 0;  // exclusive
    double max = 0;
  };

  // `path` stands before the key in messages: "config.json: " or "config.json: rope_parameters.".
  // `object` and `errors` must outlive the reader.
  ConfigReader(std::string path, const JsonValue& object, std::vector<std::string>* errors)
      : path_(std::move(path)), object_(object), errors_(errors) {}

  // The value, or null when it is absent; from now on the key is known.
  const JsonValue* find(std::string_view key);

  // After an error these return the fallback or, without one, a value within the range, so that the
  // checks that follow stay defined. A key without a fallback is required.
  int64_t integer(std::string_view key, IntegerRange range, std::optional<int64_t> fallback = {});
  double real(std::string_view key, RealRange range, std::optional<double> fallback = {});
  bool flag(std::string_view key, bool fallback);
  std::optional<std::string> text(std::string_view key);
  // nullopt when absent or in error.
  std::optional<std::vector<std::string>> texts(std::string_view key);
  std::optional<std::vector<int64_t>> integers(std::string_view key);

  // Only one value is implemented; absent means that value.
  void expect_flag(std::string_view key, bool only);
  void expect_text(std::string_view key, std::string_view only);
  void expect_number(std::string_view key, double only);

  void ignore(std::string_view key) { known_.emplace(key); }
  // Notes every key that no call above has named.
  void reject_unknown();

  template <class... Parts>
  void error(std::string_view key, const Parts&... why) {
    errors_->push_back(absl::StrCat(path_, to_absl(key), ": ", why...));
  }

 private:
  void wrong_kind(std::string_view key, const JsonValue& value, std::string_view wanted);
  void only_value(std::string_view key, const JsonValue& value, std::string_view only);

  const std::string path_;
  const JsonValue& object_;
  std::vector<std::string>* const errors_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace dhs
