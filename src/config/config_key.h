// One row per configuration key: the only place that knows a key's name, type, range and field.
// Parsing, --set, --print-config, suggestions and the check of docs/CONFIG.md all read this table.
// A default is not in the table: it is the initialiser in dhisparse/config.h.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/config.h"

namespace dhs {

// The key at the top of every file and the only value of it that this build reads.
inline constexpr char kSchemaVersionKey[] = "schema_version";
inline constexpr char kSchemaVersion[] = "1";

// A scalar from the file or from --set.
struct KeyInput {
  std::string_view text;
  bool quoted = false;
  std::string_view directory;  // absolute; where a relative path starts
};

struct ConfigKey {
  std::string name;     // "device.memory"
  std::string accepts;  // "a size from 64KiB to 16TiB, in steps of 4KiB"
  bool required = false;
  // Writes the field, or leaves it alone and says what is wrong, the limit and what to do.
  std::function<absl::Status(const KeyInput&, EngineConfig&)> parse;
  // The field as a YAML scalar that `parse` reads back.
  std::function<std::string(const EngineConfig&)> print;
};

// In the order of the structs; keys of a section are neighbours.
const std::vector<ConfigKey>& config_keys();

// Null when there is no such key.
const ConfigKey* find_config_key(std::string_view name);

// "model", "device", ... in order.
const std::vector<std::string>& config_sections();
bool is_config_section(std::string_view name);

// "device" of "device.memory"; empty for a name without a dot.
std::string_view section_of(std::string_view name);

// Whether a running daemon takes over other values of the key.
bool is_live(std::string_view name);

// "memory, chunk, ..."
std::string keys_of_section(std::string_view section);

// What the writer of an unknown key or section probably meant, as a full name.
struct UnknownKey {
  std::string suggestion;  // empty: nothing is close
  std::string message;     // "unknown key; did you mean 'device.memory'?"
};
UnknownKey explain_unknown_key(std::string_view name);

}  // namespace dhs
