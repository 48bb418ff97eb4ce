// The types a key can have: each function makes the table row of one key from its name, the field
// it sets and the limits of its value.
#pragma once

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dhisparse/base.h"
#include "src/config/config_key.h"

namespace dhs {

// The field of a configuration that a key sets.
template <class C, class Section, class T>
struct Field {
  using Config = C;
  Section Config::*section;
  T Section::*member;

  T& of(Config& config) const { return (config.*section).*member; }
  const T& of(const Config& config) const { return (config.*section).*member; }
};
template <class C, class Section, class T>
Field(Section C::*, T Section::*) -> Field<C, Section, T>;

// Inclusive.
struct Range {
  int64_t min = 0;
  int64_t max = 0;
};
struct SizeRange {
  int64_t min = 0;
  int64_t max = 0;
  int64_t step = 1;  // the value is a multiple of it
};
struct NumberRange {
  double min = 0;
  double max = 0;
};

// What depends on the type only; the templates below add the field.
std::string accepts_integer(Range range);
std::string accepts_size(SizeRange range);
std::string accepts_number(NumberRange range);
std::string accepts_duration(absl::Duration min);
std::string accepts_one_of(const std::vector<std::string>& names);
absl::StatusOr<int64_t> parse_integer(const KeyInput& input, Range range);
absl::StatusOr<int64_t> parse_size(const KeyInput& input, SizeRange range);
absl::StatusOr<double> parse_number(const KeyInput& input, NumberRange range);
absl::StatusOr<absl::Duration> parse_duration_from(const KeyInput& input, absl::Duration min);
absl::StatusOr<bool> parse_bool(const KeyInput& input);
absl::StatusOr<size_t> parse_one_of(const KeyInput& input, const std::vector<std::string>& names);
absl::StatusOr<std::string> parse_text(const KeyInput& input);
absl::StatusOr<std::string> parse_directory(const KeyInput& input);
absl::StatusOr<std::string> parse_host_port(const KeyInput& input);
absl::StatusOr<std::string> parse_host_port_or_off(const KeyInput& input);
std::string print_size(int64_t bytes);
std::string print_number(double value);
std::string print_duration(absl::Duration duration);
std::string print_text(const std::string& text);  // quoted where YAML would misread it

// The row of a field whose value `read` parses and `show` prints.
template <class F, class Read, class Show>
KeyOf<typename F::Config> make_key(std::string name, std::string accepts, F field, Read read,
                                   Show show) {
  using Config = typename F::Config;
  KeyOf<Config> key{
      .name = std::move(name), .accepts = std::move(accepts), .parse = {}, .print = {}};
  key.parse = [field, read](const KeyInput& input, Config& config) {
    auto value = read(input);
    if (!value.ok()) return value.status();
    auto& target = field.of(config);
    target = static_cast<std::remove_reference_t<decltype(target)>>(*std::move(value));
    return absl::OkStatus();
  };
  key.print = [field, show](const Config& config) { return show(field.of(config)); };
  return key;
}

template <class F>
KeyOf<typename F::Config> integer_key(std::string name, F field, Range range) {
  return make_key(
      std::move(name), accepts_integer(range), field,
      [range](const KeyInput& input) { return parse_integer(input, range); },
      [](int64_t value) { return absl::StrCat(value); });
}

template <class F>
KeyOf<typename F::Config> size_key(std::string name, F field, SizeRange range) {
  return make_key(
      std::move(name), accepts_size(range), field,
      [range](const KeyInput& input) { return parse_size(input, range); }, print_size);
}

template <class F>
KeyOf<typename F::Config> number_key(std::string name, F field, NumberRange range) {
  return make_key(
      std::move(name), accepts_number(range), field,
      [range](const KeyInput& input) { return parse_number(input, range); }, print_number);
}

// From `min` to inf.
template <class F>
KeyOf<typename F::Config> duration_key(std::string name, F field, absl::Duration min) {
  return make_key(
      std::move(name), accepts_duration(min), field,
      [min](const KeyInput& input) { return parse_duration_from(input, min); }, print_duration);
}

template <class F>
KeyOf<typename F::Config> fraction_key(std::string name, F field) {
  return number_key(std::move(name), field, {0, 1});
}

template <class F>
KeyOf<typename F::Config> bool_key(std::string name, F field) {
  return make_key(std::move(name), "true or false", field, parse_bool,
                  [](bool value) { return std::string(value ? "true" : "false"); });
}

template <class F>
KeyOf<typename F::Config> text_key(std::string name, F field) {
  return make_key(std::move(name), "text", field, parse_text, print_text);
}

template <class F>
KeyOf<typename F::Config> directory_key(std::string name, F field) {
  return make_key(std::move(name), "a directory", field, parse_directory, print_text);
}

// Empty: none.
template <class F>
KeyOf<typename F::Config> optional_path_key(std::string name, const char* what, F field) {
  return make_key(
      std::move(name), absl::StrCat(what, ", or empty"), field,
      [](const KeyInput& input) -> absl::StatusOr<std::string> {
        if (input.text.empty()) return std::string();
        return parse_directory(input);
      },
      print_text);
}

// `auto` is 0, which is not in the range.
template <class F>
KeyOf<typename F::Config> auto_integer_key(std::string name, F field, Range range) {
  return make_key(
      std::move(name), absl::StrCat("auto, or ", accepts_integer(range)), field,
      [range](const KeyInput& input) -> absl::StatusOr<int64_t> {
        if (input.text == "auto") return int64_t{0};
        return parse_integer(input, range);
      },
      [](int64_t value) { return value == 0 ? std::string("auto") : absl::StrCat(value); });
}

template <class F>
KeyOf<typename F::Config> host_port_key(std::string name, F field) {
  return make_key(std::move(name), "host:port", field, parse_host_port, print_text);
}

template <class F>
ConfigKey host_port_or_off_key(std::string name, F field) {
  return make_key(std::move(name), "host:port, or off", field, parse_host_port_or_off, print_text);
}

// One name of `choices`; the field gets the value beside it.
template <class F, class T>
KeyOf<typename F::Config> choice_key(std::string name, F field,
                                     std::vector<std::pair<std::string, T>> choices) {
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const auto& choice : choices) names.push_back(choice.first);
  const auto read = [choices, names](const KeyInput& input) -> absl::StatusOr<T> {
    DHS_ASSIGN_OR_RETURN(const size_t choice_idx, parse_one_of(input, names));
    return choices[choice_idx].second;
  };
  const auto show = [choices, key = name](const T& value) {
    for (const auto& choice : choices) {
      if (choice.second == value) return choice.first;
    }
    check_failed(__FILE__, __LINE__, "value has a name", key);
  };
  return make_key(std::move(name), accepts_one_of(names), field, read, show);
}

}  // namespace dhs
