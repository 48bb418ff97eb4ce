// One row per configuration key: the only place that knows a key's name, type, range and field.
// Parsing, --set, --print-config, suggestions and the check of docs/CONFIG.md all read this table.
// A default is not in the table: it is the initialiser in dhisparse/config.h. Files of another kind
// have a table of their own, with rows of the same form.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/config.h"
#include "src/config/key_names.h"

namespace dhs {

// A scalar from the file or from --set.
struct KeyInput {
  std::string_view text;
  bool quoted = false;
  std::string_view directory;  // absolute; where a relative path starts
};

template <class Config>
struct KeyOf {
  std::string name;     // "device.memory"
  std::string accepts;  // "a size from 64KiB to 16TiB, in steps of 4KiB"
  bool required = false;
  // Writes the field, or leaves it alone and says what is wrong, the limit and what to do.
  std::function<absl::Status(const KeyInput&, Config&)> parse;
  // The field as a YAML scalar that `parse` reads back.
  std::function<std::string(const Config&)> print;
};
using ConfigKey = KeyOf<EngineConfig>;

// In the order of the structs; keys of a section are neighbours.
const std::vector<ConfigKey>& config_keys();

// Null when there is no such key.
const ConfigKey* find_config_key(std::string_view name);

// Of the table's keys.
const KeyNames& config_key_names();

// Whether a running daemon takes over other values of the key.
bool is_live(std::string_view name);

}  // namespace dhs
